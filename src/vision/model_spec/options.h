// The options of datasets and models: plain values with their defaults. Loaders (dataset/) and models (dinov3/) take
// these, so that both can be used without a config; config/ fills them from TOML. No torch, nothing is read or checked
// here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace fulldeck::model_spec {

enum class Task { kSegmentation, kClassification };
enum class DataKind { kSynthetic, kMmseg, kLoveda, kMmrs1m, kFolders };
enum class Head { kLinear, kUp };
enum class Norm { kSyncBatch, kGroup };

// What a dataset is read from, and what is done to its samples. In a config: [data].
struct DataOptions {
  DataKind kind = DataKind::kSynthetic;
  Task task = Task::kSegmentation;
  std::string root;             // folder of the dataset; empty for synthetic
  std::string train = "train";  // names of the splits below the root; loveda: "Train", "Val"
  std::string val = "val";
  std::string image_dir = "img_dir";  // mmseg
  std::string mask_dir = "ann_dir";
  std::string image_suffix = ".png";
  std::string mask_suffix = ".png";
  // mmrs1m: sets below classification/ ("EuroSAT" …); empty: the only set in the folder.
  std::vector<std::string> sets;
  // Class names in the order of their numbers; empty with folders and mmrs1m: as found.
  std::vector<std::string> classes;
  // Label 0 becomes ignored, 1 … N become 0 … N−1 (loveda: always).
  bool reduce_zero_label = false;
  std::int64_t ignore_label = 255;
  std::vector<std::int64_t> bands = {1, 2, 3};       // of the file, counted from 1; one per channel
  double value_range = 0;                            // the value of full white; 0: by the file's type
  std::vector<double> mean = {0.485, 0.456, 0.406};  // of values in 0 … 1
  std::vector<double> std = {0.229, 0.224, 0.225};
  // Side of the model's input in pixels; a multiple of 16.
  std::int64_t size = 512;
  std::array<double, 2> scale = {0.5, 2.0};  // random resize before the crop; {1, 1}: none
  // A crop in which one class has a larger share is drawn again; 1: every crop is accepted.
  double cat_max_ratio = 0.75;
  double flip = 0.5;
  double vertical_flip = 0;
  bool rotate90 = false;  // by a random multiple of 90 degrees
  bool photometric = true;
  std::int64_t workers = 2;   // threads per rank
  std::int64_t prefetch = 2;  // batches ahead, per rank
  // Unreadable files to skip, each of them reported; one more is an error.
  std::int64_t corrupt_allowed = 0;
  bool overlap_allowed = false;  // the same files in train and val

  // kSynthetic; in a config: [data.synthetic]
  std::int64_t synthetic_train = 512;  // tiles
  std::int64_t synthetic_val = 64;
  std::int64_t synthetic_size = 64;  // side in pixels

  bool operator==(const DataOptions&) const = default;
};

// What a model is built from. In a config: [model].
struct ModelOptions {
  std::string backbone = "dinov3-vits16";     // see backbones.h
  std::string weights;                        // a safetensors file, or a folder with model.safetensors; empty: random
  std::vector<std::string> weights_may_miss;  // names, or prefixes that end with '*'
  std::vector<std::string> weights_may_have_more;
  Head head = Head::kLinear;
  std::int64_t head_channels = 512;  // up-head
  double auxiliary_weight = 0;       // weight of the auxiliary FCN head's loss; 0: no such head
  Norm norm = Norm::kSyncBatch;      // in the heads
  double drop_path = 0;
  // Freezes the embeddings and this number of leading layers; −1: the whole backbone.
  std::int64_t freeze = 0;
  double ema = 0;  // decay of the EMA weights that validation uses; 0: no EMA

  bool operator==(const ModelOptions&) const = default;
};

}  // namespace fulldeck::model_spec
