// fulldeck-predict: runs a model that `fulldeck train` has trained on images. docs/predict.md is its manual.
#include <fulldeck/memory.h>
#include <fulldeck/session.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>

#include "config/command_line.h"
#include "predict/program/predictor.h"

namespace fulldeck::predict {
namespace {

constexpr std::size_t kTopK = 5;
constexpr std::size_t kMaxMaskClasses = 255;  // a mask has one byte per pixel

struct Call {
  const config::PredictArguments& arguments;
  const TrainedModel& trained;
  int window = 0;
  int stride = 0;
  std::vector<report::LegendEntry> palette;
};

// Returns any failure of one image as an Error, so that the other images are not affected.
base::Result<Findings> PredictImage(const std::string& path, const Call& call, Predictor& predictor,
                                    ResultNames& names) {
  const model_spec::DataOptions& data = call.trained.config.data;
  const auto bytes = imagery::ReadFile(path);
  if (!bytes) return bytes.error();
  const auto head = imagery::ReadImageInfo(*bytes, path);
  if (!head) return head.error();
  auto read = imagery::DecodeImage(*bytes, path);
  if (!read) return read.error();
  const auto image = dataset::ChooseBands(std::move(*read), data, path);
  if (!image) return image.error();
  Findings findings;
  findings.image = path;
  findings.width = dataset::WidthOf(*image);
  findings.height = dataset::HeightOf(*image);
  if (data.task == model_spec::Task::kClassification) {
    findings.top_classes = TopK(predictor.Classify(*image, call.arguments.flips), call.trained.classes, kTopK);
    return findings;
  }
  const bool is_tiff = head->format == "TIFF";
  imagery::GeoTags tags;
  if (is_tiff) {
    auto found = imagery::GeoTagsOf(*bytes, path);
    if (!found) return found.error();
    tags = std::move(*found);
  }
  const auto files = names.For(path, is_tiff);
  if (!files) return files.error();
  const imagery::Mask mask = predictor.Segment(*image, call.window, call.stride, call.arguments.flips);
  if (auto written = WriteResults(*files, *image, mask, call.palette, tags); !written) return written.error();
  findings.shares = SharesOf(mask, call.trained.classes);
  findings.files = *files;
  return findings;
}

Findings TryPredictImage(const std::string& path, const Call& call, Predictor& predictor, ResultNames& names) {
  base::Result<Findings> findings = Findings{};
  try {
    findings = PredictImage(path, call, predictor, names);
  } catch (const Error& error) {
    findings = base::Error{error.what()};
  } catch (const std::exception& error) {
    std::string why;
    findings = IsOutOfMemory(std::current_exception(), &why)
                   ? base::Error{"the memory of the host is too small for it (" + why + "). Cut it into tiles first."}
                   : base::Error{error.what()};
  }
  if (findings) return std::move(*findings);
  Findings failed;
  failed.image = path;
  failed.failure = findings.error().message;
  return failed;
}

int Predict(const config::PredictArguments& arguments) {
  const auto trained = FindTrainedModel(arguments.checkpoint, arguments.newest);
  if (!trained) {
    base::Log(base::Severity::kError, trained.error().message);
    return 1;
  }
  for (const std::string& note : trained->notes) base::Log(base::Severity::kWarning, note);
  const bool segmentation = trained->config.data.task == model_spec::Task::kSegmentation;
  if (segmentation && trained->classes.size() > kMaxMaskClasses)
    throw Error("the model tells " + std::to_string(trained->classes.size()) +
                " classes apart, and a mask can hold 255.");

  Call call{arguments, *trained, 0, 0, report::PaletteOf(trained->classes)};
  call.window = arguments.window.value_or(static_cast<int>(trained->config.data.size));
  call.stride = arguments.stride.value_or(std::max(call.window * 2 / 3 / kPatch * kPatch, kPatch));
  if (const auto problem = config::StrideProblem(call.stride, call.window)) {
    base::Log(base::Severity::kError, *problem + ".");
    return 2;
  }
  if (segmentation) {
    std::error_code failure;
    std::filesystem::create_directories(arguments.output, failure);
    if (failure) throw Error("cannot make the folder " + base::Printable(arguments.output) + ": " + failure.message());
  }

  SessionOptions options;
  options.world_size = 1;
  options.device = arguments.device;
  const std::shared_ptr<Session> session = Session::FromEnvironment(options);
  session->EnterPhase(Phase::kLoading);
  Predictor predictor(*trained, session->team());
  base::Log(base::Severity::kInfo, "checkpoint " + base::Printable(trained->folder) + ", step " +
                                       std::to_string(trained->step) + (trained->is_ema ? ", averaged weights" : ""));
  session->EnterPhase(Phase::kOther);

  ResultNames names(arguments.output, arguments.images);
  std::vector<Findings> all;
  for (const std::string& path : arguments.images) {
    all.push_back(TryPredictImage(path, call, predictor, names));
    const Findings& last = all.back();
    if (!last.failure.empty()) {
      base::Log(base::Severity::kError, last.failure.find(path) != std::string::npos
                                            ? last.failure
                                            : base::Printable(path) + ": " + last.failure);
    } else if (!arguments.json) {
      std::fputs(FindingsText(last).c_str(), stdout);
      std::fflush(stdout);
    }
  }
  if (arguments.json) std::fputs(FindingsJson(*trained, all).c_str(), stdout);
  session->EnterPhase(Phase::kFinished);
  const auto failed = std::count_if(all.begin(), all.end(), [](const Findings& one) { return !one.failure.empty(); });
  if (failed > 0) {
    base::Log(base::Severity::kError,
              std::to_string(failed) + " of " + std::to_string(all.size()) + " images could not be done.");
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace fulldeck::predict

int main(int count, char** args) try {
  const auto arguments = fulldeck::config::ParsePredictArguments({args + 1, args + count});
  if (!arguments) {
    fulldeck::base::Log(fulldeck::base::Severity::kError, arguments.error().message);
    return 2;
  }
  if (!arguments->help.empty()) {
    std::fputs(arguments->help.c_str(), stdout);
    return 0;
  }
  return fulldeck::predict::Predict(*arguments);
} catch (const std::exception& error) {
  fulldeck::base::Log(fulldeck::base::Severity::kError, error.what());
  return 1;
}
