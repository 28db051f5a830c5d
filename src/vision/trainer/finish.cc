#include "trainer/finish.h"

#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>
#include <fulldeck/memory.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "base/files/whole_file.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "config/config.h"
#include "config/job_folder.h"
#include "config/read.h"
#include "config/step_shape.h"
#include "dataset/checks.h"
#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/event_file.h"
#include "report/json_lines.h"
#include "report/palette.h"
#include "report/progress_line.h"
#include "report/run_report.h"
#include "report/scores.h"
#include "trainer/batch_feed.h"

namespace fulldeck::trainer {
namespace {

// The first three bands (or the first one, three times) as they were before normalization.
imagery::Image8 Shown(const dataset::Batch& batch, const model_spec::DataOptions& data) {
  imagery::Image8 image{static_cast<int>(batch.width), static_cast<int>(batch.height), 3, {}};
  const std::int64_t pixels = batch.height * batch.width;
  image.values.resize(static_cast<std::size_t>(pixels) * 3);
  for (std::size_t band = 0; band < 3; ++band) {
    const auto from =
        std::min<std::size_t>(batch.channels >= 3 ? band : 0, static_cast<std::size_t>(batch.channels - 1));
    const float* plane = batch.images.get() + static_cast<std::int64_t>(from) * pixels;
    const double mean = from < data.mean.size() ? data.mean[from] : 0;
    const double deviation = from < data.std.size() ? data.std[from] : 1;
    for (std::int64_t i = 0; i < pixels; ++i) {
      const double value = std::clamp(plane[i] * deviation + mean, 0.0, 1.0);
      image.values[static_cast<std::size_t>(i) * 3 + band] = static_cast<std::uint8_t>(std::lround(value * 255));
    }
  }
  return image;
}

imagery::Image8 Colored(const std::uint8_t* mask, const dataset::Batch& batch,
                        const std::vector<report::LegendEntry>& legend) {
  imagery::Image8 image{static_cast<int>(batch.width), static_cast<int>(batch.height), 3, {}};
  for (std::int64_t i = 0; i < batch.height * batch.width; ++i) {
    // Ignored pixels are black.
    const report::LegendEntry entry = mask[i] < legend.size() ? legend[mask[i]] : report::LegendEntry{};
    image.values.insert(image.values.end(), {entry.red, entry.green, entry.blue});
  }
  return image;
}

report::Example ExampleOf(TrainStep& train_step, const dataset::Batch& batch, const dataset::Source& val,
                          const config::Config& config, c10::Device device) {
  const auto classes = static_cast<std::int64_t>(val.classes().size());
  const LabeledBatch sample = ToDevice(batch, val, classes, device);
  const at::Tensor logits = train_step.Logits(sample.images).to(at::kCPU, at::kFloat);
  report::Example example;
  example.name = val.Name(batch.indices[0]);
  example.image_png = imagery::EncodePng(Shown(batch, config.data));
  if (batch.masks != nullptr) {
    const std::vector<report::LegendEntry> legend = report::PaletteOf(val.classes());
    const at::Tensor predicted = logits[0].argmax(0).to(at::kByte).contiguous();
    example.truth_png = imagery::EncodePng(Colored(batch.masks.get(), batch, legend));
    example.prediction_png = imagery::EncodePng(Colored(predicted.const_data_ptr<std::uint8_t>(), batch, legend));
  } else {
    const auto predicted = logits[0].argmax(0).item<std::int64_t>();
    char share[40];
    std::snprintf(share, sizeof share, " (%.0f %%)", 100 * at::softmax(logits[0], 0)[predicted].item<double>());
    example.truth_text = val.classes()[static_cast<std::size_t>(batch.categories[0])];
    example.prediction_text = val.classes()[static_cast<std::size_t>(predicted)] + share;
  }
  return example;
}

}  // namespace

std::vector<report::RankTimes> GatherTimes(Session& session, const LoopTimes& mine) {
  const auto peak = ReadMemory(session.device()).peak;
  std::ostringstream text;
  text.precision(9);
  text << mine.data << ' ' << mine.compute << ' ' << mine.communication << ' ' << mine.other << ' ' << mine.samples
       << ' ' << (peak ? static_cast<long long>(*peak) : -1) << ' ' << session.device().str();
  std::vector<report::RankTimes> ranks;
  for (const std::string& of_rank : GatherTexts(session.team(), "times", text.str())) {
    std::istringstream fields(of_rank);
    report::RankTimes times;
    long long peak_memory = -1;
    times.rank = static_cast<int>(ranks.size());
    fields >> times.data >> times.compute >> times.communication >> times.other >> times.samples >> peak_memory >>
        times.device;
    if (peak_memory >= 0) times.peak_memory = static_cast<std::uint64_t>(peak_memory);
    ranks.push_back(std::move(times));
  }
  return ranks;
}

std::vector<report::Example> Examples(TrainStep& train_step, Session& session, const dataset::Source& val,
                                      const config::Config& config) {
  std::vector<report::Example> examples;
  const auto wanted = std::min<std::uint64_t>(static_cast<std::uint64_t>(config.log.examples), val.size());
  if (wanted == 0) return examples;
  const TrainStep::EvaluationMode evaluation(train_step);
  const c10::NoGradGuard no_grad;
  dataset::PipelineOptions options;
  options.augment = false;
  options.whole = config.data.task == model_spec::Task::kSegmentation;
  options.seed = config.seed;
  dataset::Pipeline pipeline(val, config.data, std::move(options));
  for (std::uint64_t i = 0; i < wanted; ++i) {
    pipeline.Request({0, {val.size() * i / wanted}});
    const auto batch = pipeline.Next();
    if (batch.ok()) examples.push_back(ExampleOf(train_step, *batch, val, config, session.device()));
  }
  return examples;
}

}  // namespace fulldeck::trainer
