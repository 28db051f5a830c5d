// The manifest of a checkpoint: its files, their lengths, and the checksum of every tensor. It is written last and ends
// with a checksum of itself, so a valid manifest vouches for everything else. docs/checkpoints.md shows one.
//
// Pure functions; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fulldeck::checkpoint {

constexpr int kManifestVersion = 1;
constexpr std::uint64_t kMaxManifestBytes = 256 << 20;
constexpr std::uint64_t kMaxStep = 999'999'999'999'999;
constexpr std::uint64_t kMaxWorldSize = 1'000'000;

struct TensorSum {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;
  friend bool operator==(const TensorSum&, const TensorSum&) = default;
};

// Tensors have their own checksums, in the order of the file; `head_hash` covers the bytes before the first tensor. A
// file without tensors is all head.
struct FileSum {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t head_bytes = 0;
  std::uint64_t head_hash = 0;
  std::vector<TensorSum> tensors;
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

struct Manifest {
  std::uint64_t step = 0;
  std::uint64_t world_size = 1;  // number of ranks when it was saved
  std::uint64_t saved_at = 0;    // seconds since 1970, on the writer's clock
  std::optional<double> score;   // higher is better; used to keep the best checkpoints
  std::vector<FileSum> files;

  const FileSum* Find(std::string_view name) const;
  std::uint64_t bytes() const;  // of all files
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Whether a file of a checkpoint may have this name: letters, digits, '.', '_' and '-', not starting with a dot.
bool IsFileName(std::string_view name);

std::string FormatManifest(const Manifest& manifest);

// Fails on any damage, an unknown version, a name that leaves the folder, and lengths that do not add up.
base::Result<Manifest> ParseManifest(std::string_view text);

}  // namespace fulldeck::checkpoint
