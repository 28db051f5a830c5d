// Jobs for tests/vision/test_predict.py: folders with recipe.resolved and a checkpoint, as `fulldeck train` writes
// them, of small models with random weights; and the expected predictions of these models, computed here in simple
// steps.
//
//   predict_model FOLDER RAW WIDTH HEIGHT SMALL_RAW
//
// creates in FOLDER: random, averaged (weights and EMA weights differ), symmetric (flips change nothing), local (a
// patch attends only to itself), bands (bands 4, 3, 2 of a file, batch norm in the up-head) and classify. RAW: WIDTH ×
// HEIGHT × 3 bytes, SMALL_RAW: 64 × 64 × 3 for the classifier. JOB/expected.raw contains one class per pixel, or the
// probabilities as text.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <fulldeck/checkpoint.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "config/read.h"
#include "dinov3/ema.h"
#include "dinov3/vision_model.h"

namespace {

using namespace fulldeck;  // NOLINT(google-build-using-namespace): a test program

config::Config MakeConfig(const std::string& job, const std::string& kind) {
  const std::filesystem::path path(job);
  config::Config config;
  config.name = path.filename().string();
  config.work_dirs = path.parent_path().string();
  config.steps = 10;
  config.train.warmup = 1;
  config.data.size = 64;
  config.data.classes = {"background", "building", "road", "water", "forest"};
  config.model.backbone = "dinov3-tiny";
  config.model.ema = kind == "averaged" ? 0.99 : 0;
  if (kind == "classify") {
    config.data.task = model_spec::Task::kClassification;
    config.data.kind = model_spec::DataKind::kFolders;
    config.data.root = ".";
    config.data.classes.clear();
  }
  if (kind == "bands") {
    config.data.kind = model_spec::DataKind::kMmseg;
    config.data.root = ".";
    config.data.bands = {4, 3, 2};
    config.data.value_range = 10000;
    config.model.head = model_spec::Head::kUp;
    config.model.head_channels = 32;
    config.model.auxiliary_weight = 0.4;
  }
  return config;
}

// Larger weights than the initial ones, so that more than one class wins.
void MakeDecided(dinov3::VisionModelImpl& model, const std::string& kind) {
  const at::NoGradGuard no_gradients;
  for (auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    at::Tensor& value = item.value();
    const bool queries = name.find(".q_proj.") != std::string::npos || name.find(".k_proj.") != std::string::npos;
    if (name.find("patch_embeddings.weight") != std::string::npos) {
      value.normal_(0, 0.1);
      if (kind == "symmetric") value.copy_(value.mean({2, 3}, true).expand_as(value).clone());
    } else if (kind == "symmetric" && queries) {
      value.zero_();
    } else if (kind == "local" && name.find("layer_scale1") != std::string::npos) {
      value.zero_();
    } else if (name.find("classifier.weight") != std::string::npos) {
      value.normal_(0, 1);
    }
  }
}

at::Tensor Normalized(const std::string& raw, std::int64_t width, std::int64_t height,
                      const model_spec::DataOptions& data) {
  const at::Tensor image = at::from_blob(const_cast<char*>(raw.data()), {height, width, 3}, at::kByte)
                               .permute({2, 0, 1})
                               .to(at::kFloat)
                               .div(255)
                               .unsqueeze(0);
  const at::Tensor mean = at::tensor(data.mean).to(at::kFloat).reshape({1, 3, 1, 1});
  const at::Tensor deviation = at::tensor(data.std).to(at::kFloat).reshape({1, 3, 1, 1});
  return at::pad((image - mean) / deviation, {0, (16 - width % 16) % 16, 0, (16 - height % 16) % 16});
}

void WriteExpected(dinov3::VisionModelImpl& model, const model_spec::DataOptions& data, const std::string& job,
                   const std::string& raw_path, std::int64_t width, std::int64_t height) {
  const at::NoGradGuard no_gradients;
  std::ifstream file(raw_path, std::ios::binary);
  const std::string raw{std::istreambuf_iterator<char>(file), {}};
  const at::Tensor image = Normalized(raw, width, height, data);
  model.eval();
  const at::Tensor logits = model.forward(image).logits;
  std::ofstream out(job + "/expected.raw", std::ios::binary);
  if (data.task == model_spec::Task::kClassification) {
    const at::Tensor probabilities = at::softmax(logits, 1);
    for (std::int64_t i = 0; i < probabilities.size(1); ++i) out << probabilities[0][i].item<float>() << "\n";
    return;
  }
  const at::Tensor mask = at::upsample_bilinear2d(logits, {image.size(2), image.size(3)}, false)
                              .argmax(1)
                              .to(at::kByte)
                              .index({0})
                              .narrow(0, 0, height)
                              .narrow(1, 0, width)
                              .contiguous();
  out.write(static_cast<const char*>(mask.const_data_ptr()), mask.numel());
}

void MakeJob(const std::string& job, const std::string& kind, char** images) {
  std::filesystem::create_directories(job);
  const config::Config config = MakeConfig(job, kind);
  std::ofstream(job + "/recipe.resolved") << config::ToResolvedText(config);
  Team team;
  team.store = c10::make_intrusive<c10d::HashStore>();
  const std::int64_t classes = 5;
  dinov3::VisionModel model(config.model, config.data.task, classes, 3, team);
  MakeDecided(*model, kind);
  dinov3::VisionModel other(config.model, config.data.task, classes, 3, team);
  MakeDecided(*other, kind);

  State state;
  // The EMA weights are the expected model; the other weights differ.
  state.Module("model", kind == "averaged" ? *other : *model);
  std::optional<dinov3::Ema> ema;
  if (kind == "averaged") {
    ema.emplace(*model, 0.99);
    state.Tensors(
        "ema", [&] { return ema->Save(); }, [](const State::NamedTensors&) {});
  }
  std::string names = "airport\nbeach\nforest\nharbor\nriver";
  if (kind == "classify") state.Value("classes", names);
  Checkpoints checkpoints(job + "/checkpoints", team, {.announce = false});
  checkpoints.Save(10, state, 0.75);
  checkpoints.Finish();
  if (kind == "classify") WriteExpected(*model, config.data, job, images[3], 64, 64);
  if (kind != "classify" && kind != "bands")
    WriteExpected(*model, config.data, job, images[0], std::stoll(images[1]), std::stoll(images[2]));
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 6) return 2;
  at::manual_seed(42);
  for (const char* kind : {"random", "averaged", "symmetric", "local", "bands", "classify"})
    MakeJob(arguments[1] + std::string("/") + kind, kind, arguments + 2);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
