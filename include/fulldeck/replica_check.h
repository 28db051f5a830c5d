// Checks that the ranks' parameters are still identical. They must be after every step. A flipped bit, a parameter that
// was replaced without the wrapper, or a card that computes wrong sums makes them diverge without any other symptom.
// Ranks compare a hash of the raw bytes, so "identical" means bit for bit. It detects divergence, not which rank is
// right.
//
// DataParallel does this by itself (DataParallelOptions::hash_every); use this in programs with their own loops.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace fulldeck {

// A 64-bit, non-cryptographic hash, not much slower than reading the memory. The same on every machine with the same
// byte order.
FULLDECK_RUNTIME_API std::uint64_t HashOfBytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);
// Hash of the values in logical order, whatever the strides. Tensors on cards are copied to the host in chunks.
FULLDECK_RUNTIME_API std::uint64_t HashOfTensor(const at::Tensor& tensor, std::uint64_t seed = 0);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// A collective: compares the tensors of all ranks, which have the same names and shapes everywhere. Returns an empty
// string if they are identical; otherwise which ranks differ from the majority, and in what ("rank 3 differs from the 7
// others, which agree; first in fc.weight, …").
FULLDECK_RUNTIME_API std::string CompareOverRanks(const Team& team, const std::vector<NamedTensor>& tensors);

// Spreads the comparison over steps: each Step hashes one share of the tensors, and the last of `every` steps compares.
// A difference is found within 2 × every steps. All ranks call Step equally often, after the same steps. Threads: one
// at a time.
class FULLDECK_RUNTIME_API ReplicaCheck {
 public:
  // `every`: at least 1.
  ReplicaCheck(Team team, int every);

  // Pass the same tensors in each call of a round. Throws an Error on all ranks when they differ.
  void Step(const std::vector<NamedTensor>& tensors, std::uint64_t step);
  // Whether the next Step begins a round.
  bool begins() const { return part_ == 0; }
  // Of the last complete round; 0: none yet. Equal on all ranks.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Team team_;
  std::uint64_t every_;
  std::uint64_t part_ = 0;
  std::uint64_t hash_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace fulldeck
