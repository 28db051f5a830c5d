#include "predict/trained_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/read.h"

namespace fulldeck::predict {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::Result;
using checkpoint::CheckpointReader;

constexpr char kManifest[] = "manifest.json";
constexpr char kResolvedConfig[] = "recipe.resolved";
constexpr char kTrainedWith[] = "trained_with.txt";
constexpr std::int64_t kMaxClasses = 100000;

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string Shown(const fs::path& path) {
  return base::Printable(path.string());
}

struct Candidate {
  std::string folder;
  std::uint64_t step = 0;
  std::optional<double> score;
};

// The checkpoints of a directory, in the order in which they are tried.
Result<std::vector<Candidate>> Candidates(checkpoint::Files& files, const std::string& directory, bool newest,
                                          std::vector<std::string>& notes) {
  const auto found = checkpoint::ListCheckpoints(files, directory);
  if (!found) return found.error();
  std::vector<Candidate> candidates;
  for (const checkpoint::FoundCheckpoint& one : *found) {
    const std::string folder = directory + "/" + one.folder;
    const auto text = checkpoint::ReadWhole(files, folder + "/" + kManifest, checkpoint::kMaxManifestBytes);
    const auto manifest = text ? checkpoint::ParseManifest(*text) : Result<checkpoint::Manifest>(text.error());
    if (manifest) {
      candidates.push_back({folder, manifest->step, manifest->score});
    } else {
      notes.push_back(Shown(folder) + " is passed over: " + manifest.error().message);
    }
  }
  // They come newest first; a stable sort keeps that order among ties.
  if (!newest) {
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.score && (!b.score || *a.score > *b.score);
    });
  }
  return candidates;
}

// Class count from the head's last layer: the rows of its weights are the classes.
std::optional<std::int64_t> CountClasses(const CheckpointReader::PartReader& tensors_file) {
  for (const checkpoint::TensorEntry& tensor : tensors_file.header.tensors) {
    if (tensor.name != "head.classifier.weight" || tensor.shape.empty()) continue;
    const std::uint64_t rows = tensor.shape[0];
    if (rows >= 1 && rows <= kMaxClasses) return static_cast<std::int64_t>(rows);
  }
  return std::nullopt;
}

// JOB/checkpoints/STEP yields JOB.
fs::path JobOf(const std::string& checkpoint_folder) {
  return fs::path(checkpoint_folder).parent_path().parent_path();
}

std::vector<std::string> NamesInCheckpoint(const CheckpointReader& reader) {
  const auto found = reader.scalars().find("classes");
  const auto* text = found != reader.scalars().end() ? std::get_if<std::string>(&found->second) : nullptr;
  std::vector<std::string> names;
  if (text == nullptr) return names;
  for (const std::string_view name : base::Split(*text, '\n')) names.emplace_back(name);
  return names;
}

// From the line "classes = building, road" of trained_with.txt.
std::vector<std::string> NamesInJob(checkpoint::Files& files, const fs::path& job) {
  constexpr std::string_view kBegin = "classes = ";
  std::vector<std::string> names;
  const auto text = checkpoint::ReadWhole(files, (job / kTrainedWith).string(), config::kMaxConfigBytes);
  if (!text) return names;
  for (std::string_view line : base::Split(*text, '\n')) {
    if (line.substr(0, kBegin.size()) != kBegin) continue;
    for (const std::string_view name : base::Split(line.substr(kBegin.size()), ','))
      names.emplace_back(base::Trim(name));
  }
  return names;
}

// The first list whose length matches the model's number of classes.
std::vector<std::string> NamesOf(checkpoint::Files& files, const CheckpointReader& reader, const fs::path& job,
                                 const config::Config& config, std::size_t count) {
  std::vector<std::string> names = NamesInCheckpoint(reader);
  if (names.size() != count) names = config.data.classes;
  if (names.size() != count) names = NamesInJob(files, job);
  if (names.size() != count) {
    names.clear();
    for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("class {}", i));
  }
  for (std::string& name : names) name = base::Printable(name);
  return names;
}

Result<config::Config> ReadConfig(checkpoint::Files& files, const std::string& checkpoint_folder) {
  const fs::path job = JobOf(checkpoint_folder);
  const fs::path path = job / kResolvedConfig;
  if (!Exists(path)) {
    return Error{"there is no " + std::string(kResolvedConfig) + " in " + Shown(job.empty() ? "." : job) +
                 ", so it is not known what model the checkpoint " + Shown(checkpoint_folder) +
                 " is of. A checkpoint must stand in the folder of its job: JOB/checkpoints/STEP."};
  }
  const auto text = checkpoint::ReadWhole(files, path.string(), config::kMaxConfigBytes);
  if (!text) return text.error();
  return config::FromResolvedText(*text, path.string());
}

Result<TrainedModel> Load(checkpoint::Files& files, const Candidate& candidate, config::Config config) {
  const auto reader = CheckpointReader::Open(files, candidate.folder);
  if (!reader) return reader.error();
  const CheckpointReader::PartReader* tensors_file = config.model.ema > 0 ? reader->Find("ema") : nullptr;
  TrainedModel model;
  model.is_ema = tensors_file != nullptr;
  if (tensors_file == nullptr) tensors_file = reader->Find("model");
  const std::optional<std::int64_t> classes = tensors_file != nullptr ? CountClasses(*tensors_file) : std::nullopt;
  if (!classes)
    return Error{Shown(candidate.folder) +
                 " is a checkpoint, but not one of `fulldeck train`: it has no head.classifier.weight."};
  std::vector<CheckpointReader::TensorRequest> requests;
  for (std::size_t i = 0; i < tensors_file->header.tensors.size(); ++i) requests.push_back({tensors_file, i, nullptr});
  if (auto verified = reader->ReadTensors(requests); !verified) return verified.error();
  model.folder = candidate.folder;
  model.step = reader->manifest().step;
  model.score = reader->manifest().score;
  model.weights_path = tensors_file->path;
  model.classes = NamesOf(files, *reader, JobOf(candidate.folder), config, static_cast<std::size_t>(*classes));
  model.config = std::move(config);
  return model;
}

}  // namespace

Result<TrainedModel> FindTrainedModel(const std::string& path, bool newest) {
  checkpoint::RealFiles files;
  std::error_code failure;
  // Removes a trailing slash; with it, the parent would be the folder itself.
  fs::path given = fs::absolute(fs::path(path), failure).lexically_normal();
  if (!given.has_filename()) given = given.parent_path();
  if (!fs::is_directory(given, failure))
    return Error{Shown(path) + (Exists(given) ? " is no folder" : " does not exist") +
                 ". A checkpoint is the folder of a job (work_dirs/NAME) or of one of its checkpoints."};
  if (Exists(given / kManifest)) {
    auto config = ReadConfig(files, given.string());
    if (!config) return config.error();
    return Load(files, {given.string(), 0, std::nullopt}, std::move(*config));
  }
  const fs::path directory = Exists(given / "checkpoints") ? given / "checkpoints" : given;
  std::vector<std::string> notes;
  const auto candidates = Candidates(files, directory.string(), newest, notes);
  if (!candidates) return candidates.error();
  if (candidates->empty() && notes.empty())
    return Error{Shown(path) + " has no checkpoints: there is neither a " + kManifest +
                 " nor a folder step-… in it. A checkpoint is the folder of a job (work_dirs/NAME) or of one of its "
                 "checkpoints."};
  for (const Candidate& candidate : *candidates) {
    auto config = ReadConfig(files, candidate.folder);
    if (!config) return config.error();
    auto model = Load(files, candidate, std::move(*config));
    if (model) {
      model->notes = std::move(notes);
      return model;
    }
    notes.push_back(Shown(candidate.folder) + " is passed over: " + model.error().message);
  }
  return Error{"none of the checkpoints in " + Shown(directory) + " is good:\n  " + base::Join(notes, "\n  ")};
}

}  // namespace fulldeck::predict
