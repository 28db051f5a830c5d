// Measures a training step of the vision job's model on one device: forward, losses of both heads, backward and AdamW,
// for a segmentation with the up-head and the auxiliary head. bench/vit_step.py measures the same in PyTorch, for
// comparison.
//
//   build/bench/vit_step --batch 2                 ViT-L/16, 512 × 512, bfloat16, on the card
//   build/bench/vit_step --device cpu --backbone dinov3-tiny --size 64 --precision float32
//
// Prints one line. Synchronizes with the device before and after each step, and reports the median.
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "dinov3/losses.h"
#include "dinov3/vision_model.h"
#include "fulldeck/adamw.h"
#include "fulldeck/data_parallel.h"
#include "fulldeck/grad_scaler.h"
#include "fulldeck/session.h"

namespace {

using fulldeck::dinov3::ForwardRandom;
using fulldeck::dinov3::LossesOf;
using fulldeck::dinov3::Prediction;
using fulldeck::dinov3::VisionModel;
using fulldeck::dinov3::VisionModelImpl;

constexpr std::int64_t kClasses = 7;

struct Options {
  std::string device = "cuda";
  std::string backbone = "dinov3-vitl16";
  std::string precision = "bfloat16";
  std::string optimizer = "fused";  // or torch: LibTorch's own per-parameter loop
  std::int64_t batch = 2;
  std::int64_t size = 512;
  std::int64_t steps = 20;
  std::int64_t warm_up = 5;
  double drop_path = 0;
  bool wrapped = false;  // in DataParallel, as in the vision job
};

Options Read(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* const value = i + 1 < count ? words[++i] : nullptr;
    const auto number = [&] { return std::max<std::int64_t>(std::atoll(value), 1); };
    if (value == nullptr) {
      throw fulldeck::Error(word + ": a value is missing");
    } else if (word == "--device") {
      options.device = value;
    } else if (word == "--backbone") {
      options.backbone = value;
    } else if (word == "--precision") {
      options.precision = value;
    } else if (word == "--optimizer") {
      options.optimizer = value;
    } else if (word == "--batch") {
      options.batch = number();
    } else if (word == "--size") {
      options.size = number();
    } else if (word == "--steps") {
      options.steps = number();
    } else if (word == "--warm-up") {
      options.warm_up = number();
    } else if (word == "--drop-path") {
      options.drop_path = std::atof(value);
    } else if (word == "--wrapped") {
      options.wrapped = std::string(value) == "yes";
    } else {
      throw fulldeck::Error(word +
                            ": not known. Options, each with a value: --device cpu|cuda --backbone NAME --precision "
                            "float32|bfloat16 --optimizer fused|torch --batch --size --steps --warm-up --drop-path "
                            "--wrapped yes|no");
    }
  }
  return options;
}

std::vector<torch::optim::OptimizerParamGroup> Groups(VisionModelImpl& model) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& group : fulldeck::dinov3::ParamGroups(model, 0.1, false)) {
    groups.emplace_back(group.parameters,
                        std::make_unique<torch::optim::AdamWOptions>(
                            torch::optim::AdamWOptions(1e-4 * group.lr_factor).weight_decay(group.decayed ? 0.05 : 0)));
  }
  return groups;
}

int Run(const Options& options) {
  fulldeck::SessionOptions wanted;
  wanted.device = options.device;
  const auto session = fulldeck::Session::FromEnvironment(wanted);
  session->Seed(0);
  const c10::Device device = session->device();

  fulldeck::model_spec::ModelOptions model_config;
  model_config.backbone = options.backbone;
  model_config.head = fulldeck::model_spec::Head::kUp;
  model_config.auxiliary_weight = 0.4;
  model_config.drop_path = options.drop_path;
  VisionModel model(model_config, fulldeck::model_spec::Task::kSegmentation, kClasses, 3, session->team());
  model->to(device);
  std::optional<fulldeck::DataParallel<VisionModelImpl>> parallel;
  if (options.wrapped) parallel.emplace(model, *session);
  std::unique_ptr<torch::optim::AdamW> optimizer;
  if (options.optimizer == "torch") {
    optimizer = std::make_unique<torch::optim::AdamW>(Groups(*model));
  } else {
    optimizer = std::make_unique<fulldeck::AdamW>(Groups(*model));
  }

  const at::Tensor images = at::randn({options.batch, 3, options.size, options.size}).to(device);
  const at::Tensor labels = at::randint(0, kClasses, {options.batch, options.size, options.size}, at::kLong).to(device);
  ForwardRandom random;
  for (std::int64_t i = 0; i < options.batch; ++i) random.samples.push_back(static_cast<std::uint64_t>(i));

  const c10::impl::VirtualGuardImpl card(device.type());
  const auto wait = [&] {
    if (!device.is_cpu()) card.synchronizeDevice(device.index());
  };
  const bool narrow = options.precision == "bfloat16";
  std::vector<double> milliseconds;
  at::Tensor loss;
  for (std::int64_t step = 0; step < options.warm_up + options.steps; ++step) {
    wait();
    const auto begin = std::chrono::steady_clock::now();
    random.step = static_cast<std::uint64_t>(step);
    optimizer->zero_grad();
    {
      const fulldeck::Autocast cast(device.type(), at::kBFloat16, narrow);
      const Prediction prediction = parallel ? parallel->Forward(images, &random) : model->forward(images, &random);
      loss = LossesOf(prediction, labels, model_config, 255, 0).total;
    }
    loss.backward();
    if (parallel) {
      parallel->Step(*optimizer);
    } else {
      optimizer->step();
    }
    wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (step >= options.warm_up) milliseconds.push_back(took.count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = milliseconds[milliseconds.size() / 2];
  std::printf(
      "fulldeck  %s %lld x %lld, batch %lld, %s, AdamW %s%s: %.2f samples/s, %.2f ms a step (least %.2f), loss %.4f\n",
      options.backbone.c_str(), static_cast<long long>(options.size), static_cast<long long>(options.size),
      static_cast<long long>(options.batch), options.precision.c_str(), options.optimizer.c_str(),
      options.wrapped ? ", DataParallel" : "", 1000.0 * static_cast<double>(options.batch) / median, median,
      milliseconds.front(), loss.item<double>());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(Read(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vit_step: %s\n", error.what());
    return 1;
  }
}
