#include "dataset/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "dataset/checks.h"
#include "temporary_folder.h"

namespace fulldeck::dataset {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

imagery::Image8 Picture(int seed, int width = 8, int height = 6) {
  imagery::Image8 image{width, height, 3, {}};
  for (int i = 0; i < width * height * 3; ++i) image.values.push_back(static_cast<std::uint8_t>(seed * 31 + i * 7));
  return image;
}

// A dataset in its own folder.
struct Data {
  testing::TemporaryFolder folder;
  model_spec::DataOptions data;

  explicit Data(model_spec::DataKind kind) {
    data.kind = kind;
    data.root = folder.string();
    data.classes = {"a", "b", "c"};
  }
  void Image(const std::string& path, const imagery::Image8& image) const {
    fs::create_directories((folder.path() / path).parent_path());
    ASSERT_TRUE(imagery::WritePng((folder.path() / path).string(), image).ok());
  }
  void Mask(const std::string& path, std::vector<std::uint8_t> labels, int width = 8, int height = 6) const {
    labels.resize(static_cast<std::size_t>(width) * height, labels.back());
    Image(path, {width, height, 1, labels});
  }
  void Pair(const std::string& split, const std::string& name, int seed, std::vector<std::uint8_t> labels) const {
    Image("img_dir/" + split + "/" + name + ".png", Picture(seed));
    Mask("ann_dir/" + split + "/" + name + ".png", std::move(labels));
  }
  std::string Refusal(Split split = Split::kTrain) const {
    const auto source = OpenSource(data, split, 0);
    return source.ok() ? "" : source.error().message;
  }
  std::unique_ptr<Source> Open(Split split = Split::kTrain) const {
    auto source = OpenSource(data, split, 0);
    EXPECT_TRUE(source.ok()) << source.error().message;
    return source.ok() ? *std::move(source) : nullptr;
  }
};

TEST(Mmseg, FindsImagesWithTheirMasksInOneOrder) {
  Data set(model_spec::DataKind::kMmseg);
  set.Pair("train", "z", 1, {0, 1, 2});
  set.Pair("train", "city/b", 2, {1, 255, 0});
  set.Pair("train", "a", 3, {2});
  set.folder.Write("img_dir/train/.hidden.png", "");
  const auto source = set.Open();
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(source->size(), 3U);
  EXPECT_EQ(source->Name(0), "img_dir/train/a.png");
  EXPECT_EQ(source->Name(1), "img_dir/train/city/b.png");
  EXPECT_THAT(source->Files(2),
              ElementsAre(set.folder.string() + "/img_dir/train/z.png", set.folder.string() + "/ann_dir/train/z.png"));
  const auto sample = source->Load(1);
  ASSERT_TRUE(sample.ok()) << sample.error().message;
  EXPECT_EQ(std::get<imagery::Image8>(sample->image), Picture(2));
  EXPECT_EQ(sample->mask.values[0], 1);
  EXPECT_EQ(sample->mask.values[1], 255);
}

TEST(Mmseg, ReducesZeroLabelsAndIgnoresTheIgnored) {
  Data set(model_spec::DataKind::kMmseg);
  set.Pair("train", "a", 3, {0, 1, 2, 3, 255, 1});
  set.data.reduce_zero_label = true;
  std::vector<std::uint8_t> labels = set.Open()->Load(0)->mask.values;
  labels.resize(6);
  EXPECT_THAT(labels, ElementsAre(255, 0, 1, 2, 255, 0));
  set.data.ignore_label = 2;
  labels = set.Open()->Load(0)->mask.values;
  labels.resize(6);
  EXPECT_THAT(labels, ElementsAre(255, 0, 1, 255, 255, 0));
}

TEST(Mmseg, ReportsWhatIsWrongWithTheFolders) {
  Data set(model_spec::DataKind::kMmseg);
  const std::string root = set.folder.string();
  EXPECT_EQ(set.Refusal(), "There is no folder " + root + "/img_dir/train. " + root + " is there; it is empty.");
  set.Image("Img_dir/train/a.png", Picture(1));
  EXPECT_THAT(set.Refusal(), HasSubstr(root + " has Img_dir: large and small letters count."));
  fs::rename(set.folder.path() / "Img_dir", set.folder.path() / "img_dir");
  EXPECT_EQ(set.Refusal(), "There is no folder " + root + "/ann_dir/train. " + root + " is there; it has img_dir.");
  set.Mask("ann_dir/train/a.png", {1});
  EXPECT_EQ(set.Refusal(), "");
  EXPECT_THAT(set.Refusal(Split::kVal), HasSubstr("img_dir is there; it has train."));
  set.data.train = "trian";
  EXPECT_THAT(set.Refusal(), HasSubstr("Did you mean train?"));
  set.data.train = "train";
  fs::create_directories(set.folder.path() / "more");
  set.data.root = root + "/more";
  EXPECT_THAT(set.Refusal(), HasSubstr("It is one level higher: set data.root = \"" + root + "\"."));
  set.data.root = root + "/img_dir/train/a.png";
  EXPECT_THAT(set.Refusal(), HasSubstr("a.png is a file."));
  fs::create_directories(set.folder.path() / "data");
  for (const char* name : {"img_dir", "ann_dir"})
    fs::rename(set.folder.path() / name, set.folder.path() / "data" / name);
  set.data.root = root;
  EXPECT_THAT(set.Refusal(), HasSubstr("It is one level deeper: set data.root = \"" + root + "/data\"."));
  set.data.root = "";
  EXPECT_THAT(set.Refusal(), HasSubstr("data.root is not set."));
}

TEST(Mmseg, RefusesWhatIsNotComplete) {
  Data set(model_spec::DataKind::kMmseg);
  const std::string root = set.folder.string();
  set.Pair("train", "a", 3, {1});
  set.Image("img_dir/train/b.png", Picture(2));
  EXPECT_THAT(set.Refusal(), AllOf(HasSubstr("1 of 2 images in " + root + "/img_dir/train have no mask in "),
                                   HasSubstr(": b.png."), HasSubstr("data.mask_suffix")));
  set.Mask("ann_dir/train/b.png", {1});
  set.Mask("ann_dir/train/c.png", {1});
  EXPECT_THAT(set.Refusal(), HasSubstr("1 of 3 masks in " + root + "/ann_dir/train have no image in " + root +
                                       "/img_dir/train: c.png."));
  set.data.image_suffix = ".tif";
  EXPECT_THAT(set.Refusal(), HasSubstr("ends with .tif. There are 2 of .png. Set data.image_suffix"));
  fs::remove_all(set.folder.path() / "img_dir/train");
  fs::create_directories(set.folder.path() / "img_dir/train");
  EXPECT_THAT(set.Refusal(), HasSubstr("There is no file at all."));
  set.data.classes.clear();
  EXPECT_THAT(set.Refusal(), HasSubstr("data.classes is empty."));
  set.data.task = model_spec::Task::kClassification;
  EXPECT_THAT(set.Refusal(), HasSubstr("this kind of data has masks and no categories."));
}

TEST(Mmseg, RefusesMasksThatDoNotFitTheirImages) {
  Data set(model_spec::DataKind::kMmseg);
  set.Image("img_dir/train/a.png", Picture(1));
  set.Mask("ann_dir/train/a.png", {1}, 8, 5);
  set.Image("img_dir/train/b.png", Picture(1));
  set.Image("ann_dir/train/b.png", Picture(1));
  set.Image("img_dir/train/c.png", Picture(1));
  set.Mask("ann_dir/train/c.png", {1});
  const auto source = set.Open();
  EXPECT_THAT(source->Load(0).error().message,
              AllOf(HasSubstr("ann_dir/train/a.png has 8 × 5 pixels, and its image"), HasSubstr("has 8 × 6")));
  EXPECT_THAT(source->Load(1).error().message, HasSubstr("has 3 bands; a mask has one, with class numbers."));
  set.data.bands = {3, 2, 4};
  EXPECT_THAT(set.Open()->Load(2).error().message, HasSubstr("c.png has 3 bands, and data.bands asks for band 4."));
}

TEST(Loveda, ShiftsItsLabels) {
  Data set(model_spec::DataKind::kLoveda);
  set.data.classes.clear();
  for (const char* scene : {"Urban", "Rural"}) {
    set.Image(std::string("Train/") + scene + "/images_png/7.png", Picture(1));
    set.Mask(std::string("Train/") + scene + "/masks_png/7.png", {0, 1, 7});
  }
  const auto source = set.Open();
  ASSERT_EQ(source->size(), 2U);
  EXPECT_EQ(source->classes().size(), 7U);
  EXPECT_EQ(source->Name(0), "Train/Rural/images_png/7.png");
  std::vector<std::uint8_t> labels = source->Load(1)->mask.values;
  labels.resize(3);
  EXPECT_THAT(labels, ElementsAre(255, 0, 6));
  EXPECT_THAT(set.Refusal(Split::kVal),
              AllOf(HasSubstr("There is no folder"), HasSubstr("/Val."), HasSubstr("it has Train.")));
  fs::create_directories(set.folder.path() / "Val/Foo");
  EXPECT_THAT(set.Refusal(Split::kVal), HasSubstr("/Val is there; it has Foo."));
}

TEST(Categories, AreTheFoldersOfTrain) {
  Data set(model_spec::DataKind::kFolders);
  set.data.task = model_spec::Task::kClassification;
  set.data.classes.clear();
  EXPECT_THAT(set.Refusal(), HasSubstr("There is no folder"));
  set.Image("train/river/2.png", Picture(1));
  set.Image("train/river/1.png", Picture(2));
  set.Image("train/forest/9.png", Picture(3));
  set.folder.Write("train/forest/readme.txt", "");
  set.Image("val/river/4.png", Picture(4));
  const auto source = set.Open();
  EXPECT_THAT(source->classes(), ElementsAre("forest", "river"));
  ASSERT_EQ(source->size(), 3U);
  EXPECT_EQ(source->Name(1), "train/river/1.png");
  EXPECT_EQ(source->Load(1)->category, 1);
  const auto val = set.Open(Split::kVal);
  EXPECT_EQ(val->Load(0)->category, 1) << "numbered as in train";
  set.Image("val/lake/4.png", Picture(4));
  EXPECT_THAT(set.Refusal(Split::kVal),
              HasSubstr("Folders of val are no class: lake. Train has no folders of these names."));
  set.data.classes = {"forest", "river", "desert"};
  EXPECT_THAT(set.Refusal(), HasSubstr("no folder in train: desert. The folders are forest, river."));
  set.data.classes = {"river"};
  EXPECT_THAT(set.Refusal(), HasSubstr("are no class: forest. data.classes does not name them."));
  set.data.classes.clear();
  set.folder.Write("train/empty/readme.txt", "");
  EXPECT_THAT(set.Refusal(), HasSubstr("ends with .png, .jpg or .tif. There are 1 of .txt."));
  set.data.task = model_spec::Task::kSegmentation;
  EXPECT_THAT(set.Refusal(), HasSubstr("has no masks. Set data.task = \"classification\""));
}

TEST(Mmrs1m, IsClassificationAlone) {
  Data set(model_spec::DataKind::kMmrs1m);
  EXPECT_THAT(set.Refusal(), HasSubstr("data.task is \"segmentation\", and MMRS-1M has no masks."));
  set.data.task = model_spec::Task::kClassification;
  set.data.classes.clear();
  set.Image("data/classification/EuroSAT/train/River/1.png", Picture(1));
  EXPECT_THAT(set.Refusal(),
              HasSubstr("It is one level deeper: set data.root = \"" + set.folder.string() + "/data\"."));
  set.data.root += "/data";
  set.Image("data/classification/EuroSAT/test/River/2.png", Picture(2));
  EXPECT_EQ(set.Open(Split::kVal)->Name(0), "classification/EuroSAT/test/River/2.png");
  set.Image("data/classification/UCMerced/train/River/1.png", Picture(1));
  EXPECT_THAT(set.Refusal(),
              HasSubstr(": EuroSAT, UCMerced. Name those to train on, such as data.sets = [\"EuroSAT\"]."));
  set.data.sets = {"UCMerced", "EuroSAT"};
  EXPECT_THAT(set.Open()->classes(), ElementsAre("EuroSAT/River", "UCMerced/River"));
  set.data.sets = {"Eurosat"};
  EXPECT_THAT(set.Refusal(), HasSubstr("has EuroSAT: large and small letters count."));
}

TEST(ChooseBands, PicksAndScales) {
  model_spec::DataOptions data;
  const imagery::Image8 four{1, 2, 4, {1, 2, 3, 4, 5, 6, 7, 8}};
  data.bands = {4, 2, 2};
  EXPECT_THAT(std::get<imagery::Image8>(*ChooseBands(four, data, "x")).values, ElementsAre(4, 2, 2, 8, 6, 6));
  const imagery::Image8 gray{2, 1, 1, {9, 8}};
  EXPECT_THAT(std::get<imagery::Image8>(*ChooseBands(gray, data, "x")).values, ElementsAre(9, 9, 9, 8, 8, 8));
  data.bands = {1};
  EXPECT_THAT(ChooseBands(imagery::ImageFloat{1, 1, 1, {std::nanf("")}}, data, "x.tif").error().message,
              HasSubstr("x.tif has pixels that are no number (NaN or infinite)."));
  data.value_range = 10;
  EXPECT_THAT(std::get<imagery::ImageFloat>(*ChooseBands(gray, data, "x")).values,
              ElementsAre(::testing::FloatEq(0.9F), ::testing::FloatEq(0.8F)));
  data.value_range = 0;
  EXPECT_THAT(std::get<imagery::ImageFloat>(*ChooseBands(imagery::Image16{1, 1, 1, {65535}}, data, "x")).values,
              ElementsAre(1));
}

TEST(Synthetic, IsTheSameForASeedAndNeverTheSameTwice) {
  model_spec::DataOptions data;
  data.synthetic_train = 20;
  const auto first = OpenSource(data, Split::kTrain, 42);
  const auto again = OpenSource(data, Split::kTrain, 42);
  const auto other = OpenSource(data, Split::kTrain, 43);
  const auto val = OpenSource(data, Split::kVal, 42);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ((*first)->Load(i)->image, (*again)->Load(i)->image);
    EXPECT_NE((*first)->Load(i)->image, (*other)->Load(i)->image);
    EXPECT_NE((*first)->Load(i)->image, (*val)->Load(i)->image);
    EXPECT_NE((*first)->Load(i)->image, (*first)->Load((i + 1) % 20)->image);
  }
  // Golden values: a seed promises the exact pixels of a tile, also in later versions.
  const Sample sample = *(*first)->Load(0);
  const auto& pixels = std::get<imagery::Image8>(sample.image).values;
  EXPECT_THAT(std::vector<int>(pixels.begin(), pixels.begin() + 6), ElementsAre(82, 159, 124, 76, 157, 117));
  data.classes = {"one", "two"};
  EXPECT_THAT(OpenSource(data, Split::kTrain, 42).error().message,
              HasSubstr("names 2 classes, and the synthetic tiles have 7."));
}

std::vector<std::string> Problems(const Data& set) {
  const auto source = set.Open();
  return ProblemsOf(SurveyLabels(*source, 100, 2), set.data, source->classes(), Split::kTrain);
}

TEST(Checks, FindNothingWrongWithGoodData) {
  model_spec::DataOptions data;
  const auto source = OpenSource(data, Split::kTrain, 42);
  const LabelSurvey survey = SurveyLabels(**source, 30, 3);
  EXPECT_EQ(survey.samples, 30U);
  EXPECT_THAT(ProblemsOf(survey, data, (*source)->classes(), Split::kTrain), IsEmpty());
  EXPECT_EQ(SurveyLabels(**source, 30, 1).counts, survey.counts);
}

TEST(Checks, FindCommonMistakes) {
  Data zeros(model_spec::DataKind::kMmseg);
  zeros.Pair("train", "a", 1, {0});
  zeros.Pair("train", "b", 2, {0});
  EXPECT_THAT(Problems(zeros), ElementsAre(AllOf(HasSubstr("All labels of 2 samples of train are the same: 0 (a)."),
                                                 HasSubstr("was it written with zeros?"))));
  zeros.data.reduce_zero_label = true;
  EXPECT_THAT(Problems(zeros), ElementsAre(AllOf(HasSubstr("is ignored: there is nothing to learn."),
                                                 HasSubstr("need data.reduce_zero_label = false."))));

  Data shifted(model_spec::DataKind::kMmseg);
  shifted.Pair("train", "a", 1, {0, 1, 2, 3});
  EXPECT_THAT(Problems(shifted),
              ElementsAre(AllOf(HasSubstr("Labels of 1 sample of train are out of range: 3, with 3 classes (0 … 2)."),
                                HasSubstr("need data.kind = \"loveda\" or data.reduce_zero_label = true."))));
  shifted.data.reduce_zero_label = true;
  EXPECT_THAT(Problems(shifted), IsEmpty());

  Data colors(model_spec::DataKind::kMmseg);
  colors.Pair("train", "a", 1, {0, 76, 150});
  EXPECT_THAT(Problems(colors),
              ElementsAre(AllOf(HasSubstr("out of range: 76 … 150,"), HasSubstr("colours are no labels."))));

  Data binary(model_spec::DataKind::kMmseg);
  binary.Pair("train", "a", 1, {0, 255, 0});
  EXPECT_THAT(Problems(binary), ElementsAre(HasSubstr("written with 0 and 1, not with 0 and 255.")));

  Data black(model_spec::DataKind::kMmseg);
  black.Pair("train", "a", 1, {0, 1, 2});
  black.Image("img_dir/train/a.png", {8, 6, 3, std::vector<std::uint8_t>(8 * 6 * 3, 0)});
  EXPECT_THAT(Problems(black),
              ElementsAre(HasSubstr("1 of 1 sample of train has one value in all their pixels: img_dir/train/a.png.")));

  Data broken(model_spec::DataKind::kMmseg);
  broken.Pair("train", "a", 1, {0, 1, 2});
  broken.folder.Write("img_dir/train/a.png", "no image");
  EXPECT_THAT(Problems(broken), ElementsAre(HasSubstr("No sample of train could be read.")));
}

TEST(Checks, FindTheSameFilesInBothParts) {
  Data set(model_spec::DataKind::kMmseg);
  set.Pair("train", "a", 1, {0, 1});
  set.Pair("train", "b", 2, {0, 1});
  set.Pair("val", "c", 3, {0, 1});
  EXPECT_THAT(OverlapOf(*set.Open(), *set.Open(Split::kVal), 100), IsEmpty());
  set.Pair("val", "d", 2, {0, 1});
  EXPECT_THAT(
      OverlapOf(*set.Open(), *set.Open(Split::kVal), 100),
      ElementsAre(AllOf(
          HasSubstr("1 file of val has the same content as one of train: img_dir/val/d.png = img_dir/train/b.png"),
          HasSubstr("data.overlap_allowed = true."))));
  fs::remove(set.folder.path() / "img_dir/val/d.png");
  fs::create_symlink("../train/b.png", set.folder.path() / "img_dir/val/d.png");
  EXPECT_THAT(OverlapOf(*set.Open(), *set.Open(Split::kVal), 100),
              ElementsAre(HasSubstr("1 of the 2 files of val is a file of train too: img_dir/val/d.png.")));
  set.data.val = "train";
  EXPECT_THAT(OverlapOf(*set.Open(), *set.Open(Split::kVal), 0),
              ElementsAre(HasSubstr(
                  "2 of the 2 files of val are files of train too: img_dir/train/a.png, img_dir/train/b.png.")));
}

}  // namespace
}  // namespace fulldeck::dataset
