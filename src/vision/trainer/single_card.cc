#include "trainer/single_card.h"

#include <fulldeck/adamw.h>
#include <fulldeck/grad_scaler.h>
#include <fulldeck/memory.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/log.h"
#include "base/text.h"
#include "dinov3/losses.h"
#include "dinov3/vision_model.h"
#include "trainer/batch_feed.h"
#include "trainer/train_step.h"

namespace fulldeck::trainer {
namespace {

constexpr int kSteps = 5;
constexpr double kLongest = 4;  // seconds; at least one step is measured

double Measure(const config::Config& config, Session& session, const dataset::Source& train,
               const config::StepShape& shape) {
  const c10::Device device = session.device();
  dataset::PipelineOptions options;
  options.seed = config.seed;
  dataset::Pipeline pipeline(train, config.data, std::move(options));
  dataset::BatchRequest request;
  for (std::int64_t i = 0; i < shape.micro_batch; ++i) {
    request.indices.push_back(static_cast<std::uint64_t>(i) % train.size());
  }
  pipeline.Request(std::move(request));
  const auto host = pipeline.Next();
  if (!host.ok()) return 0;
  const auto classes = static_cast<std::int64_t>(train.classes().size());
  const LabeledBatch batch = ToDevice(*host, train, classes, device);

  model_spec::ModelOptions described = config.model;
  described.norm = model_spec::Norm::kGroup;
  dinov3::VisionModel model(described, config.data.task, classes, static_cast<std::int64_t>(config.data.bands.size()),
                            session.team());
  model->to(device);
  std::vector<at::Tensor> trainable;
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  AdamW optimizer(trainable, torch::optim::AdamWOptions(1e-6));
  dinov3::ForwardRandom random;
  random.seed = config.seed;
  random.samples = batch.samples;

  const auto type = TypeOf(config.train.precision);
  const auto step = [&] {
    optimizer.zero_grad();
    dinov3::Losses losses;
    {
      std::optional<Autocast> cast;
      if (type) cast.emplace(device.type(), *type);
      losses = dinov3::LossesOf(model->forward(batch.images, &random), batch.labels, config.model, dataset::kIgnored,
                                config.train.label_smoothing);
    }
    losses.total.backward();
    optimizer.step();
    // Copying the value to the CPU waits for the card.
    return losses.total.to(at::kCPU).item<double>();
  };
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  step();  // warm-up: allocations, kernel selection
  const auto begin = Clock::now();
  int done = 0;
  while (done < kSteps && (done == 0 || seconds_since(begin) < kLongest)) {
    step();
    ++done;
  }
  return static_cast<double>(done * batch.images.size(0)) / seconds_since(begin);
}

}  // namespace

std::optional<double> MeasureSingleCard(const config::Config& config, Session& session, const dataset::Source& train,
                                        const config::StepShape& shape) {
  double speed = 0;
  if (session.is_main()) {
    try {
      speed = Measure(config, session, train, shape);
    } catch (const std::exception& error) {
      // The comparison is not worth a failure; if the training has the same error, it fails by itself.
      base::Log(base::Severity::kWarning, "the speed of one card was not measured, so the report compares with none: " +
                                              base::Printable(error.what()));
      speed = 0;
    }
    ReleaseCaches(session.device());
  }
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", speed);
  const double of_rank_0 = std::strtod(GatherTexts(session.team(), "one card", text)[0].c_str(), nullptr);
  return of_rank_0 > 0 ? std::optional<double>(of_rank_0) : std::nullopt;
}

}  // namespace fulldeck::trainer
