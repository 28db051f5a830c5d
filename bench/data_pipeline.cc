// How many samples per second the pipeline produces from MMSegmentation folders; data_pipeline.py compares it with
// PyTorch's DataLoader. Prints one number.
//
//   data_pipeline ROOT IMAGE_SUFFIX WORKERS BATCH SECONDS
#include <fulldeck/random.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "dataset/pipeline.h"
#include "dataset/source.h"
#include "model_spec/options.h"

int main(int count, char** arguments) {
  using namespace fulldeck;
  if (count != 6) {
    std::fprintf(stderr, "Usage: data_pipeline ROOT IMAGE_SUFFIX WORKERS BATCH SECONDS\n");
    return 2;
  }
  model_spec::DataOptions data;
  data.kind = model_spec::DataKind::kMmseg;
  data.root = arguments[1];
  data.image_suffix = arguments[2];
  data.workers = std::strtoll(arguments[3], nullptr, 10);
  data.classes = {"background", "building", "road", "water", "barren", "forest", "agricultural"};
  const auto batch = std::strtoull(arguments[4], nullptr, 10);
  const double seconds = std::strtod(arguments[5], nullptr);
  const auto source = dataset::OpenSource(data, dataset::Split::kTrain, 0);
  if (!source) {
    std::fprintf(stderr, "%s\n", source.error().message.c_str());
    return 1;
  }
  dataset::Pipeline pipeline(**source, data, {.seed = 1});
  std::uint64_t asked = 0;
  const auto ask = [&] {
    dataset::BatchRequest request;
    for (std::uint64_t i = 0; i < batch; ++i, ++asked) {
      request.epoch = asked / (*source)->size();
      request.indices.push_back(asked % (*source)->size());
    }
    pipeline.Request(std::move(request));
  };
  for (std::int64_t i = 0; i < data.prefetch + 1; ++i) ask();
  const auto take = [&]() -> bool {
    const auto taken = pipeline.Next();
    if (!taken) std::fprintf(stderr, "%s\n", taken.error().message.c_str());
    ask();
    return taken.ok();
  };
  for (int i = 0; i < 4; ++i) {
    if (!take()) return 1;
  }
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t samples = 0;
  std::chrono::duration<double> passed{0};
  while (passed.count() < seconds) {
    if (!take()) return 1;
    samples += batch;
    passed = std::chrono::steady_clock::now() - started;
  }
  std::printf("%.2f\n", static_cast<double>(samples) / passed.count());
  return 0;
}
