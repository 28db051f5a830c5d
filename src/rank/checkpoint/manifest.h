// The manifest of a checkpoint: which files it has, how long each is, and the checksum of every tensor in them. It is
// written last, and its own text ends with its own checksum, so a manifest that reads well vouches for all the rest.
// docs/checkpoints.md shows one.
//
// Pure functions, any thread.
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

// Tensors have sums of their own, in the order of the file; `head_hash` is over the bytes before the first of them. A
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
  std::uint64_t world_size = 1;  // ranks that trained when it was saved
  std::uint64_t saved_at = 0;    // seconds since 1970, by the clock of the writer
  std::optional<double> score;   // higher is better; what "keep the best" compares
  std::vector<FileSum> files;

  const FileSum* Find(std::string_view name) const;
  std::uint64_t bytes() const;  // of all files
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Whether a file of a checkpoint may have this name: letters, digits, '.', '_' and '-', not beginning with a dot.
bool IsFileName(std::string_view name);

std::string FormatManifest(const Manifest& manifest);

// Any damage, an unknown version, a name that leads out of the folder, lengths that do not add up: an error.
base::Result<Manifest> ParseManifest(std::string_view text);

}  // namespace fulldeck::checkpoint
