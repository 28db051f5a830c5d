// Writes one checkpoint: a folder DIR/step-000001234 with one safetensors file per part, state.json and manifest.json.
//
// Everything is written into a folder with a temporary name, synced, read back, and then renamed: at any time DIR
// contains either the complete checkpoint or nothing under its name. Not here: when to save, what to keep, who may
// write (store.h).
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

// A tensor in memory: contiguous, little-endian, TensorBytes(dtype, shape) long. Must not change until the checkpoint
// is written.
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
  bool read_back = true;  // reads everything back and compares the checksums before the checkpoint is renamed
};

// Returns the manifest once the checkpoint is durable. On an error, nothing is visible under its name, an earlier
// checkpoint of the same step is unchanged, and what was written is removed if possible.
base::Result<Manifest> WriteCheckpoint(Files& files, const std::string& directory, const Contents& contents,
                                       const WriteOptions& options = {});

// Prefixes of temporary folders in a directory of checkpoints; a writer that died may have left some.
constexpr std::string_view kWritingPrefix = ".writing-";
constexpr std::string_view kReplacedPrefix = ".replaced-";  // the checkpoint of a step while a new one replaces it
constexpr std::string_view kRemovingPrefix = ".removing-";

// Removes a folder that contains only files. What is already gone is not an error.
base::Result<void> RemoveFolderOfFiles(Files& files, const std::string& path);

}  // namespace fulldeck::checkpoint
