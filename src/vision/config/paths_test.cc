#include "config/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/work_folder.h"
#include "temporary_folder.h"

namespace fulldeck::config {
namespace {

using ::fulldeck::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Paths : public ::testing::Test {
 protected:
  Recipe Of(DataKind kind) {
    Recipe recipe;
    recipe.name = "job";
    recipe.work_dirs = folder_.string() + "/work";
    recipe.data.kind = kind;
    recipe.data.root = At("data");
    if (kind == DataKind::kLoveda) {
      recipe.data.train = "Train";
      recipe.data.val = "Val";
    }
    if (kind == DataKind::kMmrs1m) recipe.data.val = "test";
    return recipe;
  }
  std::string At(const std::string& relative) { return folder_.string() + "/" + relative; }
  void Make(const std::string& relative) { std::filesystem::create_directories(folder_.path() / relative); }

  // The one problem that there is.
  static std::string ProblemOf(const Recipe& recipe) {
    const auto problems = PathProblems(recipe);
    EXPECT_EQ(problems.size(), 1u);
    return problems.empty() ? "" : problems.front();
  }

  TemporaryFolder folder_;
};

TEST_F(Paths, OfSyntheticDataNeedNothing) {
  Recipe recipe = Of(DataKind::kSynthetic);
  recipe.data.root.clear();
  EXPECT_THAT(PathProblems(recipe), IsEmpty());
  EXPECT_EQ(CountTrainingSamples(recipe), 512u);
}

TEST_F(Paths, OfARootThatIsNotThereNameWhatIs) {
  Recipe recipe = Of(DataKind::kFolders);
  Make("Data");
  EXPECT_EQ(ProblemOf(recipe),
            "data.root = \"" + At("data") + "\": there is no such folder: " + folder_.string() +
                " is there, and has no 'data'; perhaps 'Data' is meant. Correct it in the recipe, or "
                "give --set data.root=FOLDER");
  folder_.Write("data", "a file");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("there is no such folder: it is a file"));
  recipe.data.root = "~/data";
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("'~' stands for the home folder in a shell alone; write the whole path"));
  recipe.data.root = At("data/deeper/still");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr(At("data") + " is a file"));
}

TEST_F(Paths, OfMmsegFoldersMustAllBeThere) {
  const Recipe recipe = Of(DataKind::kMmseg);
  Make("data/img_dir/train");
  Make("data/img_dir/val");
  Make("data/ann_dir/Train");
  Make("data/ann_dir/val");
  EXPECT_EQ(ProblemOf(recipe), "data.mask_dir, data.train: there is no folder " + At("data/ann_dir/train") + ": " +
                                   At("data/ann_dir") + " is there, and has no 'train'; perhaps 'Train' is meant");
  Make("data/ann_dir/train");
  EXPECT_THAT(PathProblems(recipe), IsEmpty());
  folder_.Write("data/img_dir/train/a.png", "");
  folder_.Write("data/img_dir/train/b.png", "");
  folder_.Write("data/img_dir/train/c.txt", "");
  EXPECT_EQ(CountTrainingSamples(recipe), 2u);
  EXPECT_EQ(CountTrainingSamples(recipe, 1), std::nullopt);
}

TEST_F(Paths, OneLevelBesideTheRightOneAreSeen) {
  Recipe recipe = Of(DataKind::kMmseg);
  Make("data/unpacked/img_dir/train");
  EXPECT_EQ(ProblemOf(recipe), "data.root = \"" + At("data") + "\": it has no img_dir/train, but " +
                                   At("data/unpacked") + " has: give --set data.root=" + At("data/unpacked"));
  recipe.data.root = At("data/unpacked/img_dir/");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("give --set data.root=" + At("data/unpacked")));
  recipe.data.root = At("data/unpacked/img_dir/train");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("give --set data.root=" + At("data/unpacked")));
}

TEST_F(Paths, OfLovedaHaveRuralOrUrban) {
  Recipe recipe = Of(DataKind::kLoveda);
  Make("data/Train/Rural/images_png");
  Make("data/Train/Rural/masks_png");
  Make("data/Val/urban");
  EXPECT_EQ(ProblemOf(recipe), "data.root: " + At("data/Val") +
                                   " has neither Rural nor Urban; there is urban. LoveDA has "
                                   "Val/{Rural,Urban}/{images_png,masks_png}");
  Make("data/Val/Urban/images_png");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("there is no folder " + At("data/Val/Urban/masks_png")));
  Make("data/Val/Urban/masks_png");
  EXPECT_THAT(PathProblems(recipe), IsEmpty());
  folder_.Write("data/Train/Rural/images_png/0.png", "");
  folder_.Write("data/Train/Rural/masks_png/0.png", "");
  EXPECT_EQ(CountTrainingSamples(recipe), 1u);
}

TEST_F(Paths, OfMmrs1mNameTheSets) {
  Recipe recipe = Of(DataKind::kMmrs1m);
  recipe.data.task = Task::kClassification;
  Make("data/classification/EuroSAT/train/Forest");
  Make("data/classification/EuroSAT/test/Forest");
  Make("data/caption");
  EXPECT_THAT(PathProblems(recipe), IsEmpty());
  Make("data/classification/UCMerced/train");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("data.sets: say which sets of " + At("data/classification") +
                                           " to train on: there are EuroSAT, UCMerced. Such as: --set "
                                           "'data.sets=[\"EuroSAT\"]'"));
  recipe.data.sets = {"Eurosat"};
  const auto problems = PathProblems(recipe);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems[0], HasSubstr("has no 'Eurosat'; perhaps 'EuroSAT' is meant"));
  recipe.data.sets = {"EuroSAT"};
  EXPECT_THAT(PathProblems(recipe), IsEmpty());
  folder_.Write("data/classification/EuroSAT/train/Forest/1.JPG", "");
  folder_.Write("data/classification/UCMerced/train/x/1.tif", "");
  EXPECT_EQ(CountTrainingSamples(recipe), 1u);
  recipe.data.root = At("data/classification");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("give --set data.root=" + At("data")));
}

struct WeightsRow {
  const char* name;
  std::string bytes;
  const char* told;
};

TEST_F(Paths, OfWeightsAreLookedInto) {
  Recipe recipe = Of(DataKind::kSynthetic);
  recipe.data.root.clear();
  const std::vector<WeightsRow> table = {
      {"pointer.safetensors", "version https://git-lfs.github.com/spec/v1\n", "this is a pointer of Git LFS"},
      {"zip.pth", std::string("PK\x03\x04") + "aaaaaaaaaa", "this is a file of Python's pickle"},
      {"old.pth", "\x80\x02}q and more of it", "this is a file of Python's pickle"},
      {"short.safetensors", "1234", "cannot be read, or is empty"},
      {"other.safetensors", "123456789012345", "this is no safetensors file"},
  };
  for (const WeightsRow& row : table) {
    folder_.Write(row.name, row.bytes);
    recipe.model.weights = At(row.name);
    EXPECT_THAT(ProblemOf(recipe), HasSubstr(row.told));
  }
  recipe.model.weights = At("othr.safetensors");
  EXPECT_THAT(ProblemOf(recipe),
              HasSubstr("there is no such file: " + folder_.string() +
                        " is there, and has no 'othr.safetensors'; perhaps 'other.safetensors' is meant"));
  Make("model");
  folder_.Write("model/pytorch_model.bin", "");
  recipe.model.weights = At("model");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("this folder has no model.safetensors; there is pytorch_model.bin"));
  folder_.Write("model/model.safetensors", std::string("\x10\0\0\0\0\0\0\0{\"a\":1}", 15));
  EXPECT_THAT(PathProblems(recipe), IsEmpty());
}

TEST_F(Paths, OfTheWorkFolderMustBeWritable) {
  Recipe recipe = Of(DataKind::kSynthetic);
  recipe.data.root.clear();
  folder_.Write("file", "");
  recipe.work_dirs = At("file/below");
  EXPECT_THAT(ProblemOf(recipe), HasSubstr("cannot be made: " + At("file") + " is a file"));
  // Root may write everywhere.
  if (geteuid() != 0) {
    Make("locked");
    chmod(At("locked").c_str(), 0500);
    recipe.work_dirs = At("locked/work");
    EXPECT_THAT(ProblemOf(recipe),
                HasSubstr("cannot be written: " + At("locked") + ": Permission denied. Name another"));
    chmod(At("locked").c_str(), 0700);
  }
}

TEST_F(Paths, OfCheckpointsAreFoundInTheirOrder) {
  const Recipe recipe = Of(DataKind::kSynthetic);
  EXPECT_THAT(WorkFolder(recipe).Checkpoints(), IsEmpty());
  for (const char* name : {"step-1000000000", "step-000000900", "step-000001000", ".writing-step-000002000"}) {
    Make("work/job/checkpoints/" + std::string(name));
  }
  EXPECT_THAT(WorkFolder(recipe).Checkpoints(), ElementsAre("step-000000900", "step-000001000", "step-1000000000"));
}

}  // namespace
}  // namespace fulldeck::config
