#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "predict/findings.h"
#include "predict/mosaic.h"
#include "predict/result_files.h"
#include "predict/sliding_window.h"
#include "predict/trained_model.h"
#include "report/palette.h"
#include "temporary_folder.h"

namespace fulldeck::predict {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- windows ----

TEST(SlidingWindow, SeesAnImageThatFitsWhole) {
  const WindowPlan exact = PlanWindows(64, 64, 64, 32);
  EXPECT_EQ(exact.width, 64);
  EXPECT_THAT(exact.windows, ElementsAre(Window{0, 0}));
  const WindowPlan padded = PlanWindows(50, 33, 64, 32);
  EXPECT_EQ(padded.width, 64);
  EXPECT_EQ(padded.height, 48);
  EXPECT_THAT(padded.windows, ElementsAre(Window{0, 0}));
}

TEST(SlidingWindow, EndsAtTheEdge) {
  EXPECT_THAT(PlanWindows(100, 64, 64, 32).windows, ElementsAre(Window{0, 0}, Window{32, 0}, Window{36, 0}));
  EXPECT_THAT(PlanWindows(128, 96, 64, 64).windows,
              ElementsAre(Window{0, 0}, Window{64, 0}, Window{0, 32}, Window{64, 32}));
}

TEST(SlidingWindow, CoversEveryPixelAndStaysInside) {
  for (const int width : {1, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 333}) {
    for (const int stride : {1, 7, 16, 43, 64}) {
      const WindowPlan plan = PlanWindows(width, 40, 64, stride);
      std::vector<int> seen(width, 0);
      for (const Window& window : plan.windows) {
        ASSERT_GE(window.x, 0);
        if (width >= 64) {
          ASSERT_LE(window.x + plan.width, width);
        }
        for (int x = window.x; x < std::min(window.x + plan.width, width); ++x) ++seen[x];
      }
      ASSERT_EQ(std::count(seen.begin(), seen.end(), 0), 0) << width << " " << stride;
      ASSERT_EQ(plan.width % 16, 0);
    }
  }
  EXPECT_EQ(PlanWindows(std::numeric_limits<int>::max(), 1, 16384, 16384).windows.size(), 131072U);
}

// ---- putting together ----

// The probability that a window predicts for a pixel; different in each window.
float FakeProbability(int number, int x, int y, const Window& window) {
  const int mixed = (x * 7 + y * 13 + number * 29 + window.x * 3 + window.y * 5) % 101;
  return static_cast<float>(mixed) / 101;
}

TEST(Mosaic, DecidesAsASumOverTheWholeImageWould) {
  for (const auto& [width, height, stride] :
       {std::array{75, 90, 16}, std::array{64, 64, 64}, std::array{40, 100, 24}}) {
    const WindowPlan plan = PlanWindows(width, height, 32, std::min(stride, 32));
    constexpr int kClasses = 4;
    Mosaic mosaic(width, height, kClasses, plan);
    std::vector<double> sums(static_cast<std::size_t>(width) * height * kClasses, 0);
    std::vector<float> window_probabilities(static_cast<std::size_t>(plan.width) * plan.height * kClasses);
    for (const Window& window : plan.windows) {
      for (int number = 0; number < kClasses; ++number) {
        for (int y = 0; y < plan.height; ++y) {
          for (int x = 0; x < plan.width; ++x) {
            const float value = FakeProbability(number, x, y, window);
            window_probabilities[(static_cast<std::size_t>(number) * plan.height + y) * plan.width + x] = value;
            if (window.x + x < width && window.y + y < height)
              sums[(static_cast<std::size_t>(window.y + y) * width + window.x + x) * kClasses + number] += value;
          }
        }
      }
      mosaic.Add(window, window_probabilities.data());
    }
    const imagery::Mask mask = mosaic.Finish();
    for (std::size_t i = 0; i < mask.values.size(); ++i) {
      const double* at = &sums[i * kClasses];
      // Rounding of float sums may create ties.
      ASSERT_NEAR(at[mask.values[i]], *std::max_element(at, at + kClasses), 1e-5) << i;
    }
  }
}

// ---- finding the model ----

std::string WhyNoModel(const std::string& path) {
  const auto model = FindTrainedModel(path, false);
  return model.ok() ? "" : model.error().message;
}

TEST(TrainedModel, IsNotFoundWhereThereIsNone) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(WhyNoModel(folder.string() + "/none"), HasSubstr("/none does not exist. A checkpoint is"));
  folder.Write("file", "");
  EXPECT_THAT(WhyNoModel(folder.string() + "/file"), HasSubstr("/file is no folder"));
  folder.Write("empty/notes.txt", "");
  EXPECT_THAT(WhyNoModel(folder.string() + "/empty"),
              HasSubstr("has no checkpoints: there is neither a manifest.json"));
  folder.Write("job/checkpoints/step-000000007/manifest.json", "{}");
  EXPECT_THAT(WhyNoModel(folder.string() + "/job"), HasSubstr("none of the checkpoints in"));
  EXPECT_THAT(WhyNoModel(folder.string() + "/job/checkpoints/step-000000007/"),
              HasSubstr("there is no recipe.resolved in"));
}

// ---- results ----

TEST(ResultNames, NeverCollideAndNeverOverwriteAnImage) {
  const testing::TemporaryFolder folder;
  const std::string out = folder.string();
  folder.Write("b_mask.png", "an image");
  ResultNames names(out, {"x/a.png", "y/a.tif", out + "/b.png", out + "/./b_mask.png"});
  EXPECT_EQ(names.For("x/a.png", false)->mask, out + "/a_mask.png");
  const auto second = names.For("y/a.tif", true);
  EXPECT_EQ(second->overlay, out + "/a-2_overlay.png");
  EXPECT_EQ(second->tiff, out + "/a-2_mask.tif");
  const auto refused = names.For(out + "/b.png", false);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("would overwrite the image"));
}

TEST(Overlay, BlendsImageAndColors) {
  const auto palette = report::PaletteOf({"background", "water"});
  const imagery::Mask mask{2, 1, 1, {0, 1}};
  const imagery::Image8 from_rgb = Overlay(imagery::Image8{2, 1, 3, {0, 100, 200, 10, 20, 30}}, mask, palette);
  EXPECT_EQ(from_rgb.values[0], 128);
  EXPECT_EQ(from_rgb.values[3], (10 + palette[1].red + 1) / 2);
  const imagery::Image8 from_gray = Overlay(imagery::Image8{2, 1, 1, {50, 60}}, mask, palette);
  EXPECT_EQ(from_gray.values[1], (50 + 255 + 1) / 2);
  // Values that are not finite or constant still produce a picture.
  const imagery::Image8 odd =
      Overlay(imagery::ImageFloat{2, 1, 4, {NAN, 0.1F, INFINITY, 1, NAN, 0.1F, -INFINITY, 1}}, mask, palette);
  EXPECT_EQ(odd.bands, 3);
}

TEST(Findings, CountEveryPixelAndListTheLargestFirst) {
  Findings findings;
  findings.image = "a.png";
  findings.width = 4;
  findings.height = 1;
  findings.shares = SharesOf(imagery::Mask{4, 1, 1, {1, 1, 1, 0}}, {"land", "water", "ice"});
  findings.files = ResultFiles{"a_mask.png", "a_overlay.png", std::nullopt};
  EXPECT_DOUBLE_EQ(findings.shares[1].share, 0.75);
  EXPECT_EQ(FindingsText(findings),
            "a.png (4 × 1)\n  class      %  pixels\n  water  75.00       3\n  land   25.00       1\n"
            "  -> a_mask.png\n  -> a_overlay.png\n");
}

TEST(Findings, NameTheTopClasses) {
  const auto top_classes = TopK({0.1F, 0.6F, 0.3F}, {"a", "b", "c"}, 2);
  ASSERT_EQ(top_classes.size(), 2U);
  EXPECT_EQ(top_classes[0].name, "b");
  EXPECT_EQ(top_classes[1].name, "c");
}

TEST(Findings, AreJsonWhateverTheNamesAre) {
  TrainedModel model;
  model.folder = "f";
  Findings failed;
  failed.image = "b\xff.png";
  failed.failure = "is \"broken\"";
  const std::string json = FindingsJson(model, {failed});
  EXPECT_THAT(json, HasSubstr("\"error\": \"is \\\"broken\\\"\""));
  EXPECT_THAT(json, HasSubstr("b\xEF\xBF\xBD.png"));
}

}  // namespace
}  // namespace fulldeck::predict
