// Writes one checkpoint: a folder DIR/step-000001234 with a safetensors file a part, state.json and manifest.json.
//
// Everything is written into a folder of another name, synced, read back, and then renamed: at every moment DIR holds
// either all of the checkpoint or nothing under its name. Not here: when to save, what to keep, who may write
// (store.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/scalar_state.h"

namespace fulldeck::checkpoint {

constexpr std::string_view kManifestName = "manifest.json";
constexpr std::string_view kStateName = "state.json";
constexpr std::string_view kPartSuffix = ".safetensors";

// A tensor in memory: contiguous, little-endian, TensorBytes(dtype, shape) long. Must stay as it is until the
// checkpoint is written.
struct TensorData {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> shape;
  const void* data = nullptr;
};

struct Part {
  std::string name;  // "model" becomes model.safetensors
  std::vector<TensorData> tensors;
};

struct Contents {
  std::uint64_t step = 0;
  std::uint64_t world_size = 1;
  std::optional<double> score;
  std::vector<Part> parts;
  ScalarState scalars;
};

// "step-000001234", and back.
std::string FolderNameOf(std::uint64_t step);
std::optional<std::uint64_t> StepOfFolderName(std::string_view name);

struct WriteOptions {
  bool read_back = true;  // reads everything again and compares the sums before the checkpoint gets its name
};

// The manifest of what is durable when it returns. On an error nothing of the checkpoint is seen under its name, an
// earlier one of the same step is as it was, and what was written is removed as far as that works.
base::Result<Manifest> WriteCheckpoint(Files& files, const std::string& directory, const Contents& contents,
                                       const WriteOptions& options = {});

// Names of ours in a directory of checkpoints that are no checkpoint: what a writer that died has left.
constexpr std::string_view kWritingPrefix = ".writing-";
constexpr std::string_view kReplacedPrefix = ".replaced-";  // the checkpoint of a step while a new one takes its name
constexpr std::string_view kRemovingPrefix = ".removing-";

// A folder of files, without folders in it. What is missing already is fine.
base::Result<void> RemoveFolderOfFiles(Files& files, const std::string& path);

}  // namespace fulldeck::checkpoint
