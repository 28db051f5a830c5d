#include "config/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/job_folder.h"
#include "temporary_folder.h"

namespace fulldeck::config {
namespace {

using ::fulldeck::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Paths : public ::testing::Test {
 protected:
  Config Of(model_spec::DataKind kind) {
    Config config;
    config.name = "job";
    config.work_dirs = folder_.string() + "/work";
    config.data.kind = kind;
    config.data.root = At("data");
    if (kind == model_spec::DataKind::kLoveda) {
      config.data.train = "Train";
      config.data.val = "Val";
    }
    if (kind == model_spec::DataKind::kMmrs1m) config.data.val = "test";
    return config;
  }
  std::string At(const std::string& relative) { return folder_.string() + "/" + relative; }
  void Make(const std::string& relative) { std::filesystem::create_directories(folder_.path() / relative); }

  // The only problem of the config.
  static std::string ProblemOf(const Config& config) {
    const auto problems = PathProblems(config);
    EXPECT_EQ(problems.size(), 1u);
    return problems.empty() ? "" : problems.front();
  }

  TemporaryFolder folder_;
};

TEST_F(Paths, OfSyntheticDataNeedNothing) {
  Config config = Of(model_spec::DataKind::kSynthetic);
  config.data.root.clear();
  EXPECT_THAT(PathProblems(config), IsEmpty());
  EXPECT_EQ(CountTrainingSamples(config), 512u);
}

TEST_F(Paths, OfARootThatIsNotThereNameWhatIs) {
  Config config = Of(model_spec::DataKind::kFolders);
  Make("Data");
  EXPECT_EQ(ProblemOf(config),
            "data.root = \"" + At("data") + "\": there is no such folder: " + folder_.string() +
                " is there, and has no 'data'; perhaps 'Data' is meant. Correct it in the recipe, or "
                "give --set data.root=FOLDER");
  folder_.Write("data", "a file");
  EXPECT_THAT(ProblemOf(config), HasSubstr("there is no such folder: it is a file"));
  config.data.root = "~/data";
  EXPECT_THAT(ProblemOf(config), HasSubstr("'~' stands for the home folder in a shell alone; write the whole path"));
  config.data.root = At("data/deeper/still");
  EXPECT_THAT(ProblemOf(config), HasSubstr(At("data") + " is a file"));
}

TEST_F(Paths, OfMmsegFoldersMustAllBeThere) {
  const Config config = Of(model_spec::DataKind::kMmseg);
  Make("data/img_dir/train");
  Make("data/img_dir/val");
  Make("data/ann_dir/Train");
  Make("data/ann_dir/val");
  EXPECT_EQ(ProblemOf(config), "data.mask_dir, data.train: there is no folder " + At("data/ann_dir/train") + ": " +
                                   At("data/ann_dir") + " is there, and has no 'train'; perhaps 'Train' is meant");
  Make("data/ann_dir/train");
  EXPECT_THAT(PathProblems(config), IsEmpty());
  folder_.Write("data/img_dir/train/a.png", "");
  folder_.Write("data/img_dir/train/b.png", "");
  folder_.Write("data/img_dir/train/c.txt", "");
  EXPECT_EQ(CountTrainingSamples(config), 2u);
  EXPECT_EQ(CountTrainingSamples(config, 1), std::nullopt);
}

TEST_F(Paths, OneLevelBesideTheRightOneAreSeen) {
  Config config = Of(model_spec::DataKind::kMmseg);
  Make("data/unpacked/img_dir/train");
  EXPECT_EQ(ProblemOf(config), "data.root = \"" + At("data") + "\": it has no img_dir/train, but " +
                                   At("data/unpacked") + " has: give --set data.root=" + At("data/unpacked"));
  config.data.root = At("data/unpacked/img_dir/");
  EXPECT_THAT(ProblemOf(config), HasSubstr("give --set data.root=" + At("data/unpacked")));
  config.data.root = At("data/unpacked/img_dir/train");
  EXPECT_THAT(ProblemOf(config), HasSubstr("give --set data.root=" + At("data/unpacked")));
}

TEST_F(Paths, OfLovedaHaveRuralOrUrban) {
  Config config = Of(model_spec::DataKind::kLoveda);
  Make("data/Train/Rural/images_png");
  Make("data/Train/Rural/masks_png");
  Make("data/Val/urban");
  EXPECT_EQ(ProblemOf(config), "data.root: " + At("data/Val") +
                                   " has neither Rural nor Urban; there is urban. LoveDA has "
                                   "Val/{Rural,Urban}/{images_png,masks_png}");
  Make("data/Val/Urban/images_png");
  EXPECT_THAT(ProblemOf(config), HasSubstr("there is no folder " + At("data/Val/Urban/masks_png")));
  Make("data/Val/Urban/masks_png");
  EXPECT_THAT(PathProblems(config), IsEmpty());
  folder_.Write("data/Train/Rural/images_png/0.png", "");
  folder_.Write("data/Train/Rural/masks_png/0.png", "");
  EXPECT_EQ(CountTrainingSamples(config), 1u);
}

TEST_F(Paths, OfMmrs1mNameTheSets) {
  Config config = Of(model_spec::DataKind::kMmrs1m);
  config.data.task = model_spec::Task::kClassification;
  Make("data/classification/EuroSAT/train/Forest");
  Make("data/classification/EuroSAT/test/Forest");
  Make("data/caption");
  EXPECT_THAT(PathProblems(config), IsEmpty());
  Make("data/classification/UCMerced/train");
  EXPECT_THAT(ProblemOf(config), HasSubstr("data.sets: say which sets of " + At("data/classification") +
                                           " to train on: there are EuroSAT, UCMerced. Such as: --set "
                                           "'data.sets=[\"EuroSAT\"]'"));
  config.data.sets = {"Eurosat"};
  const auto problems = PathProblems(config);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems[0], HasSubstr("has no 'Eurosat'; perhaps 'EuroSAT' is meant"));
  config.data.sets = {"EuroSAT"};
  EXPECT_THAT(PathProblems(config), IsEmpty());
  folder_.Write("data/classification/EuroSAT/train/Forest/1.JPG", "");
  folder_.Write("data/classification/UCMerced/train/x/1.tif", "");
  EXPECT_EQ(CountTrainingSamples(config), 1u);
  config.data.root = At("data/classification");
  EXPECT_THAT(ProblemOf(config), HasSubstr("give --set data.root=" + At("data")));
}

struct WeightsRow {
  const char* name;
  std::string bytes;
  const char* expected;
};

TEST_F(Paths, OfWeightsAreLookedInto) {
  Config config = Of(model_spec::DataKind::kSynthetic);
  config.data.root.clear();
  const std::vector<WeightsRow> table = {
      {"pointer.safetensors", "version https://git-lfs.github.com/spec/v1\n", "this is a pointer of Git LFS"},
      {"zip.pth", std::string("PK\x03\x04") + "aaaaaaaaaa", "this is a file of Python's pickle"},
      {"old.pth", "\x80\x02}q and more of it", "this is a file of Python's pickle"},
      {"short.safetensors", "1234", "cannot be read, or is empty"},
      {"other.safetensors", "123456789012345", "this is no safetensors file"},
  };
  for (const WeightsRow& row : table) {
    folder_.Write(row.name, row.bytes);
    config.model.weights = At(row.name);
    EXPECT_THAT(ProblemOf(config), HasSubstr(row.expected));
  }
  config.model.weights = At("othr.safetensors");
  EXPECT_THAT(ProblemOf(config),
              HasSubstr("there is no such file: " + folder_.string() +
                        " is there, and has no 'othr.safetensors'; perhaps 'other.safetensors' is meant"));
  Make("model");
  folder_.Write("model/pytorch_model.bin", "");
  config.model.weights = At("model");
  EXPECT_THAT(ProblemOf(config), HasSubstr("this folder has no model.safetensors; there is pytorch_model.bin"));
  folder_.Write("model/model.safetensors", std::string("\x10\0\0\0\0\0\0\0{\"a\":1}", 15));
  EXPECT_THAT(PathProblems(config), IsEmpty());
}

TEST_F(Paths, OfTheJobFolderMustBeWritable) {
  Config config = Of(model_spec::DataKind::kSynthetic);
  config.data.root.clear();
  folder_.Write("file", "");
  config.work_dirs = At("file/below");
  EXPECT_THAT(ProblemOf(config), HasSubstr("cannot be made: " + At("file") + " is a file"));
  // Root can write anywhere.
  if (geteuid() != 0) {
    Make("locked");
    chmod(At("locked").c_str(), 0500);
    config.work_dirs = At("locked/work");
    EXPECT_THAT(ProblemOf(config),
                HasSubstr("cannot be written: " + At("locked") + ": Permission denied. Name another"));
    chmod(At("locked").c_str(), 0700);
  }
}

TEST_F(Paths, OfCheckpointsAreFoundInTheirOrder) {
  const Config config = Of(model_spec::DataKind::kSynthetic);
  EXPECT_THAT(JobFolder(config).Checkpoints(), IsEmpty());
  for (const char* name : {"step-1000000000", "step-000000900", "step-000001000", ".writing-step-000002000"}) {
    Make("work/job/checkpoints/" + std::string(name));
  }
  EXPECT_THAT(JobFolder(config).Checkpoints(), ElementsAre("step-000000900", "step-000001000", "step-1000000000"));
}

}  // namespace
}  // namespace fulldeck::config
