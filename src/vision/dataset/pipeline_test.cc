#include "dataset/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "dataset/synthetic.h"

namespace fulldeck::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

model_spec::DataOptions SmallData() {
  model_spec::DataOptions data;
  data.size = 32;
  data.synthetic_size = 48;
  data.synthetic_train = 40;
  data.vertical_flip = 0.5;
  data.rotate90 = true;
  data.workers = 3;
  return data;
}

// Samples as the test defines them. Load may be called from any thread.
class FakeSource final : public Source {
 public:
  explicit FakeSource(std::uint64_t size, std::function<base::Result<Sample>(std::uint64_t)> load)
      : size_(size), load_(std::move(load)) {}
  std::uint64_t size() const override { return size_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  base::Result<Sample> Load(std::uint64_t index) const override { return load_(index); }
  std::string Name(std::uint64_t index) const override { return "sample " + std::to_string(index); }
  std::vector<std::string> Files(std::uint64_t) const override { return {}; }

 private:
  std::uint64_t size_;
  std::function<base::Result<Sample>(std::uint64_t)> load_;
  std::vector<std::string> classes_ = {"one", "two"};
};

Sample Flat(int width, int height, std::uint8_t value, std::uint8_t label) {
  Sample sample;
  sample.image =
      imagery::Image8{width, height, 3, std::vector<std::uint8_t>(static_cast<std::size_t>(width) * height * 3, value)};
  sample.mask = {width, height, 1, std::vector<std::uint8_t>(static_cast<std::size_t>(width) * height, label)};
  return sample;
}

std::vector<float> ImagesOf(const Batch& batch) {
  return {batch.images.get(), batch.images.get() + batch.count * batch.channels * batch.height * batch.width};
}
std::vector<std::uint8_t> MasksOf(const Batch& batch) {
  return {batch.masks.get(), batch.masks.get() + batch.count * batch.height * batch.width};
}

TEST(Pipeline, GivesTheSameBatchesWhateverTheNumberOfWorkers) {
  std::vector<std::vector<float>> images[2];
  std::vector<std::vector<std::uint8_t>> masks[2];
  std::vector<std::uint64_t> fingerprints[2];
  for (const int run : {0, 1}) {
    model_spec::DataOptions data = SmallData();
    data.workers = run == 0 ? 1 : 7;
    data.prefetch = run == 0 ? 1 : 5;
    const auto source = OpenSource(data, Split::kTrain, 3);
    ASSERT_TRUE(source.ok());
    Pipeline pipeline(**source, data, {.seed = 11});
    for (std::uint64_t i = 0; i < 9; ++i) pipeline.Request({i / 3, {i % 3, 17, 39 - i, 2 * i}});
    EXPECT_EQ(pipeline.requested(), 9U);
    for (std::uint64_t i = 0; i < 9; ++i) {
      const auto batch = pipeline.Next();
      ASSERT_TRUE(batch.ok()) << batch.error().message;
      EXPECT_THAT(batch->indices, ElementsAre(i % 3, 17, 39 - i, 2 * i));
      EXPECT_EQ(batch->height, 32);
      images[run].push_back(ImagesOf(*batch));
      masks[run].push_back(MasksOf(*batch));
      fingerprints[run].push_back(batch->fingerprint);
    }
  }
  EXPECT_EQ(images[0], images[1]);
  EXPECT_EQ(masks[0], masks[1]);
  EXPECT_EQ(fingerprints[0], fingerprints[1]);
  // Sample 17 in epochs 0 and 2: the crops differ.
  EXPECT_NE(images[0][0], images[0][6]);
  EXPECT_EQ(std::set<std::uint64_t>(fingerprints[0].begin(), fingerprints[0].end()).size(), 9U);
}

TEST(Pipeline, WhatASampleBecomesDoesNotDependOnItsBatch) {
  const model_spec::DataOptions data = SmallData();
  const auto source = OpenSource(data, Split::kTrain, 3);
  ASSERT_TRUE(source.ok());
  Pipeline pipeline(**source, data, {.seed = 11});
  pipeline.Request({4, {5, 6}});
  pipeline.Request({4, {6}});
  const auto both = pipeline.Next();
  const auto one = pipeline.Next();
  ASSERT_TRUE(both.ok() && one.ok());
  const std::vector<float> images = ImagesOf(*both);
  EXPECT_EQ(ImagesOf(*one), std::vector<float>(images.begin() + 3 * 32 * 32, images.end()));
}

TEST(Pipeline, SkipsCorruptFilesAndReportsThemOnce) {
  const FakeSource source(6, [](std::uint64_t index) -> base::Result<Sample> {
    if (index % 3 == 1) return base::Error{"file " + std::to_string(index) + " is damaged."};
    return Flat(32, 32, static_cast<std::uint8_t>(index * 10), 1);
  });
  model_spec::DataOptions data = SmallData();
  data.photometric = false;
  data.scale = {1, 1};
  data.mean = {0, 0, 0};
  data.std = {1, 1, 1};
  data.corrupt_allowed = 2;
  std::vector<std::string> reported;
  Pipeline pipeline(source, data,
                    {.on_corrupt = [&reported](const CorruptFile& file) { reported.push_back(file.why); }});
  for (int epoch = 0; epoch < 3; ++epoch) {
    pipeline.Request({0, {0, 1, 2, 3, 4, 5}});
    const auto batch = pipeline.Next();
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    EXPECT_EQ(batch->count, 4);
    EXPECT_THAT(batch->indices, ElementsAre(0, 2, 3, 5));
    EXPECT_THAT(batch->skipped, ElementsAre(1, 4));
    const std::vector<float> images = ImagesOf(*batch);
    for (int place = 0; place < 4; ++place)
      EXPECT_FLOAT_EQ(images[static_cast<std::size_t>(place) * 3 * 32 * 32 + 77],
                      static_cast<float>(batch->indices[place] * 10) / 255);
  }
  EXPECT_THAT(reported, ElementsAre("file 1 is damaged.", "file 4 is damaged."));

  data.corrupt_allowed = 1;
  Pipeline strict(source, data, {});
  strict.Request({0, {1, 2}});
  strict.Request({0, {4, 5}});
  EXPECT_TRUE(strict.Next().ok());
  const auto refused = strict.Next();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "2 samples cannot be read, and data.corrupt_allowed is 1:\n  file 1 is damaged.\n  file 4 is damaged.\n"
            "Repair or remove these files, or set data.corrupt_allowed to train without them.");

  data.corrupt_allowed = 9;
  Pipeline nothing(source, data, {});
  nothing.Request({0, {1, 4}});
  const auto empty = nothing.Next();
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.error().message,
              HasSubstr("none of the 2 samples of a batch can be read; the first: file 1 is damaged."));
}

TEST(Pipeline, RefusesALabelThatIsNoClass) {
  const FakeSource source(1, [](std::uint64_t) { return base::Result<Sample>(Flat(32, 32, 1, 2)); });
  Pipeline pipeline(source, SmallData(), {});
  pipeline.Request({0, {0}});
  const auto refused = pipeline.Next();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("the mask of sample 0 has the label 2, and there are 2 classes (0 … 1)."));
}

TEST(Pipeline, ValidatesWholeImagesInRunsOfOneSize) {
  const FakeSource source(5, [](std::uint64_t index) -> base::Result<Sample> {
    if (index == 3) return base::Error{"file 3 is damaged."};
    return index < 2 ? Flat(20, 33, 255, 1) : Flat(16, 16, 255, 0);
  });
  model_spec::DataOptions data = SmallData();
  data.corrupt_allowed = 1;
  Pipeline pipeline(source, data, {.augment = false, .whole = true});
  pipeline.Request({0, {0, 1, 2, 3, 4}});
  const auto first = pipeline.Next();
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->last);
  EXPECT_EQ(pipeline.requested(), 1U);
  EXPECT_THAT(first->indices, ElementsAre(0, 1));
  EXPECT_EQ(first->width, 32);
  EXPECT_EQ(first->height, 48);
  EXPECT_FLOAT_EQ(ImagesOf(*first)[19], static_cast<float>((1 - 0.485) / 0.229));
  EXPECT_EQ(ImagesOf(*first)[20], 0);
  EXPECT_EQ(MasksOf(*first)[19], 1);
  EXPECT_EQ(MasksOf(*first)[20], 255);
  const auto second = pipeline.Next();
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->last);
  EXPECT_EQ(pipeline.requested(), 0U);
  EXPECT_THAT(second->indices, ElementsAre(2, 4));
  EXPECT_THAT(second->skipped, ElementsAre(3));
  EXPECT_EQ(second->width, 16);
}

TEST(Pipeline, ResizesForValidationWithoutChance) {
  const FakeSource source(1, [](std::uint64_t) { return base::Result<Sample>(Flat(64, 16, 255, 1)); });
  model_spec::DataOptions data = SmallData();
  data.task = model_spec::Task::kSegmentation;
  Pipeline pipeline(source, data, {.augment = false});
  pipeline.Request({0, {0}});
  pipeline.Request({7, {0}});
  const auto batch = pipeline.Next();
  const auto later = pipeline.Next();
  ASSERT_TRUE(batch.ok() && later.ok());
  EXPECT_EQ(ImagesOf(*batch), ImagesOf(*later));
  const std::vector<std::uint8_t> labels = MasksOf(*batch);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 1), 32 * 8);
  EXPECT_EQ(labels[32 * 8], 255);
}

TEST(Pipeline, ClassificationHasCategoriesAndNoMasks) {
  model_spec::DataOptions data = SmallData();
  data.task = model_spec::Task::kClassification;
  const auto source = OpenSource(data, Split::kTrain, 3);
  ASSERT_TRUE(source.ok());
  Pipeline pipeline(**source, data, {});
  pipeline.Request({0, {0, 1, 2}});
  const auto batch = pipeline.Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->masks, nullptr);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(batch->categories[i], (*source)->Load(i)->category);
}

TEST(Pipeline, HoldsNoMoreBatchesThanItMay) {
  model_spec::DataOptions data = SmallData();
  data.prefetch = 2;
  const auto source = OpenSource(data, Split::kTrain, 3);
  ASSERT_TRUE(source.ok());
  std::atomic<int> held{0};
  int most = 0;
  Pipeline pipeline(**source, data, {.allocate = [&](std::size_t bytes) {
    most = std::max(most, ++held);
    return std::shared_ptr<void>(::operator new(bytes), [&held](void* memory) {
      --held;
      ::operator delete(memory);
    });
  }});
  for (std::uint64_t i = 0; i < 20; ++i) pipeline.Request({0, {i, i + 1}});
  base::Result<Batch> batch = base::Error{""};
  for (int i = 0; i < 20; ++i) {
    batch = pipeline.Next();
    ASSERT_TRUE(batch.ok());
  }
  // Images and masks of the two batches ahead, of the one handed out last, and of the previous one until it is
  // replaced.
  EXPECT_LE(most, 2 * 4);
  EXPECT_FALSE(pipeline.Next().ok()) << "nothing was asked for";
}

TEST(Pipeline, EndsWhileItsWorkersAreBusy) {
  std::mutex mutex;
  std::condition_variable changed;
  int loading = 0;
  bool go = false;
  const FakeSource source(100, [&](std::uint64_t) -> base::Result<Sample> {
    std::unique_lock<std::mutex> lock(mutex);
    ++loading;
    changed.notify_all();
    changed.wait(lock, [&go] { return go; });
    return Flat(32, 32, 0, 0);
  });
  std::thread later;
  {
    Pipeline pipeline(source, SmallData(), {});
    for (std::uint64_t i = 0; i < 20; ++i) pipeline.Request({0, {i, i + 1, i + 2}});
    std::unique_lock<std::mutex> lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&loading] { return loading == 3; }));
    later = std::thread([&] {
      const std::lock_guard<std::mutex> locked(mutex);
      go = true;
      changed.notify_all();
    });
  }
  later.join();
  // Only the batches ahead were started.
  EXPECT_LE(loading, 2 * 3);
}

TEST(Augment, TriesOtherCropsWhereOneClassHasTooMuch) {
  // Class 1 only in one corner: crops without it are drawn again.
  const FakeSource source(200, [](std::uint64_t) {
    Sample sample = Flat(128, 128, 100, 0);
    for (int y = 0; y < 128; ++y) {
      for (int x = 88; x < 128; ++x) *sample.mask.At(x, y) = 1;
    }
    return base::Result<Sample>(std::move(sample));
  });
  model_spec::DataOptions data = SmallData();
  data.scale = {1, 1};
  int mixed[2] = {0, 0};
  for (const int with : {0, 1}) {
    data.cat_max_ratio = with == 1 ? 0.75 : 1;
    Pipeline pipeline(source, data, {.seed = 5});
    for (std::uint64_t i = 0; i < 200; ++i) {
      pipeline.Request({0, {i}});
      const auto batch = pipeline.Next();
      ASSERT_TRUE(batch.ok());
      const std::vector<std::uint8_t> labels = MasksOf(*batch);
      const auto ones = std::count(labels.begin(), labels.end(), 1);
      if (ones > 32 * 32 / 4 && ones < 32 * 32 * 3 / 4) ++mixed[with];
    }
  }
  EXPECT_LT(mixed[0], 60);
  EXPECT_GT(mixed[1], 150);
}

TEST(Augment, PadsWhatIsSmallerThanTheCrop) {
  const FakeSource source(1, [](std::uint64_t) { return base::Result<Sample>(Flat(20, 24, 255, 1)); });
  model_spec::DataOptions data = SmallData();
  data.scale = {1, 1};
  data.rotate90 = false;
  data.photometric = false;
  Pipeline pipeline(source, data, {});
  pipeline.Request({0, {0}});
  const auto batch = pipeline.Next();
  ASSERT_TRUE(batch.ok());
  const std::vector<std::uint8_t> labels = MasksOf(*batch);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 1), 20 * 24);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 255), 32 * 32 - 20 * 24);
  const std::vector<float> images = ImagesOf(*batch);
  EXPECT_EQ(std::count(images.begin(), images.end(), 0.0F), 3 * (32 * 32 - 20 * 24));
}

}  // namespace
}  // namespace fulldeck::dataset
