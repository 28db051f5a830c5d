#include "predict/program/predictor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/softmax.h>
#include <fulldeck/checkpoint.h>
#include <fulldeck/memory.h>

#include <algorithm>

namespace fulldeck::predict {
namespace {

// A card is used better with several windows at a time; the CPU is not.
constexpr std::size_t kWindowsPerBatch = 4;

template <typename Value>
imagery::Raster<Value> Cut(const imagery::Raster<Value>& image, const Window& window, int width, int height) {
  imagery::Raster<Value> cut{
      std::min(width, image.width - window.x), std::min(height, image.height - window.y), image.bands, {}};
  cut.values.reserve(static_cast<std::size_t>(cut.width) * cut.height * cut.bands);
  for (int y = 0; y < cut.height; ++y) {
    const Value* row = image.At(window.x, window.y + y);
    cut.values.insert(cut.values.end(), row, row + static_cast<std::size_t>(cut.width) * image.bands);
  }
  return cut;
}

at::Tensor WindowTensor(const dataset::SampleImage& image, const model_spec::DataOptions& data, const WindowPlan& plan,
                        const Window* first, std::size_t count) {
  at::Tensor images = at::empty(
      {static_cast<std::int64_t>(count), static_cast<std::int64_t>(data.bands.size()), plan.height, plan.width});
  for (std::size_t i = 0; i < count; ++i) {
    dataset::Sample sample;
    sample.image = std::visit(
        [&](const auto& held) { return dataset::SampleImage(Cut(held, first[i], plan.width, plan.height)); }, image);
    dataset::PrepareWhole(sample, data, plan.height, plan.width, images[static_cast<std::int64_t>(i)].data_ptr<float>(),
                          nullptr);
  }
  return images;
}

}  // namespace

Predictor::Predictor(const TrainedModel& trained, const Team& team)
    : data_(trained.config.data),
      classes_(static_cast<int>(trained.classes.size())),
      device_(team.device),
      windows_per_batch_(team.device.is_cpu() ? 1 : kWindowsPerBatch) {
  model_ = dinov3::VisionModel(trained.config.model, data_.task, classes_,
                               static_cast<std::int64_t>(data_.bands.size()), team);
  WeightRules rules;
  // The number of updates of the averages is not a weight.
  if (trained.is_ema) rules.may_be_unexpected = {"ema/updates"};
  LoadWeights(*model_, trained.weights_path, rules);
  model_->eval();
  model_->to(device_);
}

at::Tensor Predictor::Probabilities(const at::Tensor& images, bool flips) {
  const bool map = data_.task == model_spec::Task::kSegmentation;
  const at::Tensor there = images.to(device_);
  at::Tensor sum;
  const std::vector<std::vector<std::int64_t>> ways = {{}, {3}, {2}, {2, 3}};
  for (std::size_t i = 0; i < (flips ? ways.size() : 1); ++i) {
    const at::Tensor shown = ways[i].empty() ? there : at::flip(there, ways[i]);
    at::Tensor logits = model_->forward(shown).logits;
    if (map) logits = dinov3::Prediction::Upsample(logits, images.size(2), images.size(3));
    at::Tensor probabilities = at::softmax(logits.to(at::kFloat), 1);
    if (map && !ways[i].empty()) probabilities = at::flip(probabilities, ways[i]);
    sum = sum.defined() ? sum.add_(probabilities) : probabilities;
  }
  if (flips) sum.div_(static_cast<double>(ways.size()));
  return sum.cpu().contiguous();
}

imagery::Mask Predictor::Segment(const dataset::SampleImage& image, int window, int stride, bool flips) {
  const at::NoGradGuard no_gradients;
  const WindowPlan plan = PlanWindows(dataset::WidthOf(image), dataset::HeightOf(image), window, stride);
  Mosaic mosaic(dataset::WidthOf(image), dataset::HeightOf(image), classes_, plan);
  for (std::size_t done = 0; done < plan.windows.size();) {
    const std::size_t count = std::min(windows_per_batch_, plan.windows.size() - done);
    at::Tensor probabilities;
    try {
      probabilities = Probabilities(WindowTensor(image, data_, plan, &plan.windows[done], count), flips);
    } catch (...) {
      std::string why;
      if (!IsOutOfMemory(std::current_exception(), &why)) throw;
      if (count == 1) {
        throw Error("the memory of " + device_.str() + " is too small for a window of " + std::to_string(plan.width) +
                    " × " + std::to_string(plan.height) + " pixels (" + why +
                    "). Choose a smaller --window, or another --device.");
      }
      windows_per_batch_ = count / 2;
    }
    if (!probabilities.defined()) {
      ReleaseCaches(device_);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i)
      mosaic.Add(plan.windows[done + i], probabilities[static_cast<std::int64_t>(i)].const_data_ptr<float>());
    done += count;
  }
  return mosaic.Finish();
}

std::vector<float> Predictor::Classify(const dataset::SampleImage& image, bool flips) {
  const at::NoGradGuard no_gradients;
  at::Tensor images = at::empty({1, static_cast<std::int64_t>(data_.bands.size()), data_.size, data_.size});
  dataset::Sample sample;
  sample.image = image;
  dataset::PrepareResized(sample, data_, images.data_ptr<float>(), nullptr);
  const at::Tensor probabilities = Probabilities(images, flips);
  const float* values = probabilities.const_data_ptr<float>();
  return {values, values + classes_};
}

}  // namespace fulldeck::predict
