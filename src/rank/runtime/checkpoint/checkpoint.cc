#include "fulldeck/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "checkpoint/background_saver.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quoting.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scalar_state.h"
#include "checkpoint/staging_buffer.h"
#include "runtime/checkpoint/checkpoint_state.h"

namespace fulldeck {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::KeptCheckpoint;
using runtime::Loading;
using runtime::SavedTensor;
using runtime::StateSnapshot;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kAlignment = 64;
// With what frames them they stay below what GatherTexts takes.
constexpr std::size_t kMaxRankText = 48 << 10;
constexpr std::size_t kMaxReason = 4000;

std::uint64_t Aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Several texts in one: "3:abc".
std::string Framed(const std::vector<std::string>& texts) {
  std::string framed;
  for (const std::string& text : texts) framed += std::to_string(text.size()) + ":" + text;
  return framed;
}

std::vector<std::string> Unframed(std::string_view framed) {
  std::vector<std::string> texts;
  while (!framed.empty()) {
    const std::size_t colon = framed.find(':');
    const auto bytes = base::ParseInteger<std::size_t>(framed.substr(0, colon));
    if (colon == std::string_view::npos || !bytes || *bytes > framed.size() - colon - 1)
      throw Error("another rank sent something that is no part of a checkpoint's state.");
    texts.emplace_back(framed.substr(colon + 1, *bytes));
    framed.remove_prefix(colon + 1 + *bytes);
  }
  return texts;
}

std::string RankKey(const std::string& name, std::size_t rank) {
  return name + "/rank/" + std::to_string(rank);
}

// The first rank that has something to say, with its number when there are several.
std::string FirstError(const std::vector<std::string>& texts) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) return (texts.size() == 1 ? "" : "rank " + std::to_string(rank) + ": ") + texts[rank];
  }
  return "";
}

StateSnapshot TakeSnapshot(const State& state) {
  StateSnapshot snapshot;
  for (const State::Impl::Entry& entry : state.parts().entries) entry.save(snapshot);
  for (const StateSnapshot::Part& part : snapshot.parts) {
    for (const SavedTensor& tensor : part.tensors) runtime::CheckSavable(part.name, tensor);
  }
  return snapshot;
}

std::uint64_t BytesOf(const StateSnapshot& snapshot) {
  std::uint64_t bytes = 0;
  for (const StateSnapshot::Part& part : snapshot.parts) {
    for (const SavedTensor& tensor : part.tensors) bytes += Aligned(tensor.tensor.nbytes());
  }
  return bytes;
}

}  // namespace

SaveFailed::~SaveFailed() = default;

class Checkpoints::Impl {
 public:
  Impl(std::string directory, const Team& team, CheckpointOptions options)
      : directory_(std::move(directory)), team_(team), options_(std::move(options)) {
    while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
    std::string problem;
    if (team_.is_main()) problem = OpenStore();
    const auto texts = GatherTexts(team_, "checkpoint directory", problem.substr(0, kMaxReason));
    if (!texts.at(0).empty()) throw Error("checkpoints cannot be written: " + texts[0]);
  }

  ~Impl() {
    if (saver_ == nullptr) return;
    saver_->Wait();
    // What failed was told on stderr when it did.
  }

  void Prepare(const State& state) {
    if (!team_.is_main()) return;
    std::uint64_t bytes = BytesOf(TakeSnapshot(state));
    for (const State::Impl::Entry& entry : state.parts().entries) {
      if (entry.bytes_to_come) bytes += entry.bytes_to_come();
    }
    if (auto reserved = buffer_.Reserve(bytes); !reserved) throw Error(reserved.error().message);
  }

  SaveReport Save(std::int64_t step, const State& state, std::optional<double> score) {
    const auto began = Clock::now();
    if (step < 0 || static_cast<std::uint64_t>(step) > checkpoint::kMaxStep)
      throw Error("step " + std::to_string(step) + " cannot be saved: it must be 0 or more, of 15 digits at most.");
    if (score && !std::isfinite(*score))
      throw Error("step " + std::to_string(step) + " cannot be saved: its score is not a finite number.");
    SaveReport report;
    StateSnapshot snapshot;
    if (team_.is_main()) MakeReady(state, report, snapshot);

    // One exchange brings the ranks together, tells all what rank 0 knows, and rank 0 what only the others have.
    const auto texts = GatherTexts(team_, "checkpoint ready", Framed(LocalTexts(state, report)));
    const std::vector<std::string> from_main = Unframed(texts.at(0));
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const auto parts = Unframed(texts[rank]);
      if (!parts.at(0).empty())
        throw Error("checkpoint of step " + std::to_string(step) + " not saved: rank " + std::to_string(rank) + ": " +
                    parts[0]);
    }
    report.started = from_main.at(1) == "yes";
    if (!from_main.at(2).empty()) report.earlier_failure = from_main[2];
    const bool too_many = from_main.at(3) == "yes";

    if (report.started) {
      checkpoint::Contents contents;
      if (team_.is_main()) {
        for (std::size_t rank = 0; rank < texts.size(); ++rank) {
          const auto parts = Unframed(texts[rank]);
          for (std::size_t i = 0; i < state.parts().rank_entries.size(); ++i)
            snapshot.scalars[RankKey(state.parts().rank_entries[i].name, rank)] = parts.at(kTextsOfRank + i);
        }
        Copy(snapshot, contents);
        report.bytes = copied_bytes_;
        contents.step = static_cast<std::uint64_t>(step);
        contents.world_size = static_cast<std::uint64_t>(team_.world_size);
        contents.score = score;
        contents.scalars = std::move(snapshot.scalars);
      }
      Barrier(team_, "checkpoint copy");
      if (team_.is_main()) saver_->Start(std::move(contents));
    }
    report.stall = Clock::now() - began;
    if (too_many) throw SaveFailed(TooManyText(*report.earlier_failure));
    return report;
  }

  void Check() {
    if (!team_.is_main() || saver_->busy()) return;
    TakeOutcome();
    if (unreported_failure_ && failed_in_a_row_ > options_.failed_saves_allowed) {
      throw SaveFailed(TooManyText(*std::exchange(unreported_failure_, std::nullopt)));
    }
  }

  void Finish() {
    std::string problem;
    if (team_.is_main()) {
      saver_->Wait();
      TakeOutcome();
      problem = std::exchange(unreported_failure_, std::nullopt).value_or("").substr(0, kMaxReason);
    }
    const auto texts = GatherTexts(team_, "checkpoint finish", problem);
    if (!texts.at(0).empty()) throw SaveFailed("the last checkpoint is not saved: " + texts[0]);
  }

  std::optional<LoadReport> Load(State& state) {
    const auto began = Clock::now();
    if (team_.is_main()) saver_->Wait();
    LoadReport report;
    std::optional<CheckpointReader> reader;
    const std::vector<std::string> folders = FoldersToTry();
    for (const std::string& folder : folders) {
      reader = OpenTogether(folder, report);
      if (reader) break;
    }
    if (!reader) {
      if (folders.empty()) return std::nullopt;
      throw Error("no checkpoint in \"" + base::Printable(directory_) + "\" is good:\n  " +
                  base::Join(report.passed_over, "\n  ") +
                  "\nNothing was loaded. To begin anew all the same, use another directory.");
    }
    Loading loading(*reader, team_);
    CheckTogether(state, loading, report.folder);
    LoadTogether(state, loading, report.folder);
    report.step = static_cast<std::int64_t>(reader->manifest().step);
    report.saved_by_ranks = static_cast<int>(reader->manifest().world_size);
    report.bytes = reader->manifest().bytes();
    report.took = Clock::now() - began;
    if (team_.is_main()) {
      saver_->SetTrust(reader->manifest().step, KeptCheckpoint::Trust::kVerified);
      Prepare(state);
      if (options_.announce)
        base::Log(base::Severity::kInfo, "checkpoint of step " + std::to_string(report.step) +
                                             " loaded and verified (" + base::FormatByteSize(report.bytes) + " in " +
                                             base::FormatSeconds(report.took) + ").");
    }
    return report;
  }

  std::optional<std::int64_t> durable_step() const {
    const auto step = saver_ == nullptr ? std::nullopt : saver_->last_durable_step();
    return step ? std::optional(static_cast<std::int64_t>(*step)) : std::nullopt;
  }
  const std::string& directory() const { return directory_; }

 private:
  // Before the texts of a rank: error, started, earlier failure, too many.
  static constexpr std::size_t kTextsOfRank = 4;

  checkpoint::Files& files() { return options_.files != nullptr ? *options_.files : real_files_; }

  std::string OpenStore() {
    checkpoint::StoreOptions options;
    options.keep = {static_cast<std::size_t>(std::max(options_.keep_last, 0)),
                    static_cast<std::size_t>(std::max(options_.keep_best, 0))};
    options.read_back = options_.read_back;
    auto store = checkpoint::Store::Open(files(), directory_, options,
                                         [](const std::string& text) { base::Log(base::Severity::kWarning, text); });
    if (!store) return store.error().message;
    saver_ = std::make_unique<checkpoint::BackgroundSaver>(
        std::move(*store), [this](const checkpoint::SaveOutcome& outcome) { Ended(outcome); });
    return "";
  }

  // On the writer's thread.
  void Ended(const checkpoint::SaveOutcome& outcome) const {
    if (outcome.failure) {
      base::Log(base::Severity::kError,
                *outcome.failure + " Training goes on; the checkpoints before it are untouched.");
    } else if (options_.announce) {
      base::Log(base::Severity::kInfo, "checkpoint of step " + std::to_string(outcome.step) + " is durable (" +
                                           base::FormatByteSize(outcome.bytes) + ", " +
                                           base::FormatSeconds(outcome.took) + " after the step).");
    }
    if (options_.on_ended) options_.on_ended(static_cast<std::int64_t>(outcome.step), outcome.failure);
  }

  void TakeOutcome() {
    const auto outcome = saver_->TakeOutcome();
    if (!outcome) return;
    failed_in_a_row_ = outcome->failure ? failed_in_a_row_ + 1 : 0;
    unreported_failure_ = outcome->failure;
  }

  std::string TooManyText(const std::string& last) const {
    return last + " " +
           (failed_in_a_row_ > 1 ? std::to_string(failed_in_a_row_) + " saves in a row have failed." : "") +
           " The state in memory is good; make room or choose another directory.";
  }

  // Rank 0, before the others are met: everything that can fail, and the memory.
  void MakeReady(const State& state, SaveReport& report, StateSnapshot& snapshot) {
    ready_problem_.clear();
    const auto began = Clock::now();
    if (saver_->busy()) {
      if (options_.when_busy == CheckpointOptions::WhenBusy::kRefuse) {
        report.started = false;
        return;
      }
      saver_->Wait();
      report.waited = Clock::now() - began;
      if (options_.announce && report.waited > std::chrono::milliseconds(100))
        base::Log(base::Severity::kInfo, "training waited " + base::FormatSeconds(report.waited) +
                                             " for the checkpoint before to be written; save less often, or use a "
                                             "faster disk.");
    }
    TakeOutcome();
    try {
      snapshot = TakeSnapshot(state);
      const std::uint64_t bytes = BytesOf(snapshot);
      report.buffer_grew = bytes > buffer_.size();
      if (auto reserved = buffer_.Reserve(bytes); !reserved) throw Error(reserved.error().message);
    } catch (const std::exception& error) {
      ready_problem_ = error.what();
    }
  }

  std::vector<std::string> LocalTexts(const State& state, SaveReport& report) {
    std::vector<std::string> texts(kTextsOfRank);
    std::string problem = ready_problem_;
    std::size_t bytes = 0;
    try {
      for (const State::Impl::RankEntry& entry : state.parts().rank_entries) {
        texts.push_back(entry.save(team_));
        bytes += texts.back().size();
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (bytes > kMaxRankText)
      problem = "the texts that each rank saves have " + std::to_string(bytes) + " bytes together; at most " +
                std::to_string(kMaxRankText) + " are allowed.";
    if (!problem.empty()) return {problem.substr(0, kMaxReason), "no", "", ""};
    texts[1] = report.started ? "yes" : "no";
    if (team_.is_main() && report.started) {
      texts[2] = std::exchange(unreported_failure_, std::nullopt).value_or("").substr(0, kMaxReason);
      texts[3] = !texts[2].empty() && failed_in_a_row_ > options_.failed_saves_allowed ? "yes" : "no";
    }
    return texts;
  }

  // Into the kept buffer. What lies in plain memory goes with all processors; the rest as torch copies it.
  void Copy(const StateSnapshot& snapshot, checkpoint::Contents& contents) {
    const at::NoGradGuard no_grad;
    std::vector<checkpoint::CopyJob> jobs;
    std::uint64_t at = 0;
    copied_bytes_ = 0;
    for (const StateSnapshot::Part& part : snapshot.parts) {
      contents.parts.push_back({part.name, {}});
      for (const SavedTensor& named : part.tensors) {
        const at::Tensor& tensor = named.tensor;
        unsigned char* const to = buffer_.data() + at;
        const std::uint64_t bytes = tensor.nbytes();
        if (bytes != 0 && runtime::IsPlain(tensor)) {
          jobs.push_back({tensor.const_data_ptr(), to, bytes});
        } else if (bytes != 0) {
          at::from_blob(to, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type())).copy_(tensor);
        }
        contents.parts.back().tensors.push_back({named.name, *runtime::DtypeOf(tensor), runtime::ShapeOf(tensor), to});
        at += Aligned(bytes);
        copied_bytes_ += bytes;
      }
    }
    checkpoint::CopyAll(jobs);
  }

  // Rank 0 looks, all try the same.
  std::vector<std::string> FoldersToTry() {
    std::vector<std::string> mine(1);
    if (team_.is_main()) {
      auto found = checkpoint::ListCheckpoints(files(), directory_);
      if (!found) mine[0] = found.error().message.substr(0, kMaxReason);
      if (found) {
        for (const checkpoint::FoundCheckpoint& checkpoint : *found) {
          if (mine.size() <= 1000) mine.push_back(checkpoint.folder);
        }
      }
    }
    auto folders = Unframed(GatherTexts(team_, "checkpoints found", Framed(mine)).at(0));
    if (!folders.at(0).empty()) throw Error("checkpoints cannot be read: " + folders[0]);
    folders.erase(folders.begin());
    return folders;
  }

  // Every rank checks manifest and headers and its share of the data; good is what all find good.
  std::optional<CheckpointReader> OpenTogether(const std::string& folder, LoadReport& report) {
    const std::string path = directory_ + "/" + folder;
    auto reader = CheckpointReader::Open(files(), path);
    auto good = reader
                    ? reader->Verify(static_cast<std::size_t>(team_.rank), static_cast<std::size_t>(team_.world_size))
                    : base::Result<void>(reader.error());
    const auto texts =
        GatherTexts(team_, "checkpoint verified", good ? std::string() : good.error().message.substr(0, kMaxReason));
    const std::string complaint = FirstError(texts);
    if (complaint.empty()) {
      report.folder = path;
      return std::move(*reader);
    }
    report.passed_over.push_back(complaint);
    if (team_.is_main()) {
      if (const auto step = checkpoint::StepOfFolderName(folder)) saver_->SetTrust(*step, KeptCheckpoint::Trust::kBad);
      base::Log(base::Severity::kWarning,
                "checkpoint " + base::Printable(folder) +
                    " is damaged and PASSED OVER, training goes back to the one before: " + complaint);
    }
    return std::nullopt;
  }

  void CheckTogether(const State& state, Loading& loading, const std::string& folder) {
    std::string mine;
    try {
      for (const State::Impl::Entry& entry : state.parts().entries) entry.check(loading);
      for (const State::Impl::RankEntry& entry : state.parts().rank_entries) {
        for (std::size_t rank = 0; rank < loading.reader().manifest().world_size; ++rank)
          (void)loading.Scalar<std::string>(RankKey(entry.name, rank));
      }
      mine = base::Join(loading.problems(), "\n  ");
    } catch (const std::exception& error) {
      mine = error.what();
    }
    const std::string complaint = FirstError(GatherTexts(team_, "checkpoint fits", mine.substr(0, 60 << 10)));
    if (!complaint.empty())
      throw Error("the checkpoint \"" + base::Printable(folder) +
                  "\" is good but does not fit this program; nothing was changed:\n  " + complaint);
  }

  void LoadTogether(State& state, Loading& loading, const std::string& folder) {
    std::string problem;
    try {
      for (const State::Impl::Entry& entry : state.parts().entries) entry.load(loading);
      loading.Finish();
      for (const State::Impl::RankEntry& entry : state.parts().rank_entries) {
        std::vector<std::string> texts;
        for (std::size_t rank = 0; rank < loading.reader().manifest().world_size; ++rank)
          texts.push_back(std::get<std::string>(loading.reader().scalars().at(RankKey(entry.name, rank))));
        entry.load(texts, loading);
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const std::string complaint = FirstError(GatherTexts(team_, "checkpoint loaded", problem.substr(0, kMaxReason)));
    if (!complaint.empty())
      throw Error(
          "the checkpoint \"" + base::Printable(folder) +
          "\" could not be loaded after it was found good. The state is partly changed and must not be trained: " +
          complaint);
  }

  std::string directory_;
  Team team_;
  CheckpointOptions options_;
  checkpoint::RealFiles real_files_;
  checkpoint::StagingBuffer buffer_;
  std::uint64_t copied_bytes_ = 0;
  std::string ready_problem_;
  int failed_in_a_row_ = 0;
  std::optional<std::string> unreported_failure_;
  std::unique_ptr<checkpoint::BackgroundSaver> saver_;  // rank 0; last, so that it goes first: it reads the buffer
};

Checkpoints::Checkpoints(std::string directory, const Team& team, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(std::move(directory), team, std::move(options))) {}
Checkpoints::~Checkpoints() = default;

void Checkpoints::Prepare(const State& state) {
  impl_->Prepare(state);
}
SaveReport Checkpoints::Save(std::int64_t step, const State& state, std::optional<double> score) {
  return impl_->Save(step, state, score);
}
void Checkpoints::Check() {
  impl_->Check();
}
std::optional<LoadReport> Checkpoints::Load(State& state) {
  return impl_->Load(state);
}
void Checkpoints::Finish() {
  impl_->Finish();
}
std::optional<std::int64_t> Checkpoints::durable_step() const {
  return impl_->durable_step();
}
const std::string& Checkpoints::directory() const {
  return impl_->directory();
}

}  // namespace fulldeck
