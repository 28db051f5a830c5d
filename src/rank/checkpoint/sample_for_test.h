// For tests: a folder, and a small checkpoint with tensors of several types, whose bytes depend on its step, so that a
// test can tell which step a reader has found.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"

namespace fulldeck::checkpoint {

// A folder for one test, in memory if possible: the sweeps remove tens of thousands of files, which can take a minute
// on a disk.
class QuickFolder {
 public:
  QuickFolder() {
    char in_memory[] = "/dev/shm/fulldeck-test-XXXXXX";
    char on_disk[] = "/tmp/fulldeck-test-XXXXXX";
    const char* made = mkdtemp(in_memory);
    path_ = made != nullptr ? made : mkdtemp(on_disk);
  }
  ~QuickFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  QuickFolder(const QuickFolder&) = delete;
  QuickFolder& operator=(const QuickFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

class Sample {
 public:
  explicit Sample(std::uint64_t step, std::size_t scale = 1) : step_(step) {
    contents_.step = step;
    contents_.world_size = 8;
    contents_.score = 1.0 / static_cast<double>(step + 1);
    contents_.parts.push_back({"model", {}});
    Add(0, "layer.0.weight", Dtype::kF32, {8 * scale, 16});
    Add(0, "layer.0.bias", Dtype::kBf16, {8 * scale});
    Add(0, "mask", Dtype::kBool, {5});
    Add(0, "empty", Dtype::kF16, {0, 7});
    Add(0, "count", Dtype::kI64, {});
    contents_.parts.push_back({"optimizer", {}});
    Add(1, "layer.0.weight.exp_avg", Dtype::kF32, {8 * scale, 16});
    Add(1, "layer.0.weight.exp_avg_sq", Dtype::kF64, {8 * scale, 16});
    contents_.scalars = {{"epoch", std::int64_t{3}},
                         {"lr", 0.1 + static_cast<double>(step)},
                         {"ready", true},
                         {"note", std::string("a\nb \xff")}};
  }

  const Contents& contents() const { return contents_; }

  // Whether the checkpoint contains exactly this sample; compares every tensor.
  bool IsIn(const CheckpointReader& reader) const {
    if (reader.manifest().step != step_ || !(reader.scalars() == contents_.scalars)) return false;
    if (reader.manifest().world_size != contents_.world_size || reader.parts().size() != contents_.parts.size())
      return false;
    for (const Part& part : contents_.parts) {
      const auto* read = reader.Find(part.name);
      if (read == nullptr || read->header.tensors.size() != part.tensors.size()) return false;
      for (std::size_t i = 0; i < read->header.tensors.size(); ++i) {
        const TensorEntry& entry = read->header.tensors[i];
        std::string bytes(entry.bytes(), 'x');
        if (!reader.ReadTensor(*read, i, bytes.data())) return false;
        bool same = false;
        for (const TensorData& tensor : part.tensors) {
          if (tensor.name != entry.name) continue;
          same = tensor.dtype == entry.dtype && tensor.shape == entry.shape &&
                 (bytes.empty() || std::memcmp(bytes.data(), tensor.data, bytes.size()) == 0);
        }
        if (!same) return false;
      }
    }
    return true;
  }

 private:
  void Add(std::size_t part, std::string name, Dtype dtype, std::vector<std::uint64_t> shape) {
    std::string bytes(*TensorBytes(dtype, shape), '\0');
    std::uint64_t state = step_ * 1000003 + data_.size();
    for (char& byte : bytes) {
      state = state * 6364136223846793005 + 1442695040888963407;
      byte = static_cast<char>(state >> 56);
    }
    data_.push_back(std::move(bytes));
    contents_.parts[part].tensors.push_back({std::move(name), dtype, std::move(shape), data_.back().data()});
  }

  std::uint64_t step_;
  Contents contents_;
  std::deque<std::string> data_;
};

// The newest valid checkpoint, as a resuming run finds it; the reasons for the skipped ones are added to `passed`.
inline base::Result<CheckpointReader> OpenNewestGood(Files& files, const std::string& directory,
                                                     std::vector<std::string>* passed = nullptr) {
  auto found = ListCheckpoints(files, directory);
  if (!found) return found.error();
  for (const FoundCheckpoint& checkpoint : *found) {
    auto reader = CheckpointReader::Open(files, directory + "/" + checkpoint.folder);
    auto good = reader ? reader->Verify() : base::Result<void>(reader.error());
    if (good) return reader;
    if (passed != nullptr) passed->push_back(good.error().message);
  }
  return base::Error{"no good checkpoint.", 0};
}

}  // namespace fulldeck::checkpoint
