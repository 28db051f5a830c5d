// Are the ranks' parameters still the same? They must be after every step; a flipped bit, a parameter that was
// exchanged behind the wrapper's back or a card that adds wrongly makes them come apart, and nothing else tells. Ranks
// compare a hash of the raw bytes, so that "the same" means bit by bit.
//
// DataParallel does this by itself (DataParallelOptions::hash_every); this is for programs with loops of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fulldeck/error.h"
#include "fulldeck/team.h"

namespace fulldeck {

// 64 bits of the bytes: quick (not much slower than reading the memory) and not a secret. The same on every machine of
// the same byte order.
FULLDECK_RUNTIME_API std::uint64_t HashOfBytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);
// Of the values in their order, wherever they lie: tensors of cards come to the host piece by piece.
FULLDECK_RUNTIME_API std::uint64_t HashOfTensor(const at::Tensor& tensor, std::uint64_t seed = 0);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// A collective: compares the tensors of all ranks, which have the same names and shapes everywhere. Empty: they are the
// same. Else who differs from most, and in what ("rank 3 differs from the 7 others, which agree; first in fc.weight,
// …").
FULLDECK_RUNTIME_API std::string CompareOverRanks(const Team& team, const std::vector<NamedTensor>& tensors);

// Compares in small parts: each Step hashes one part, the last of `every` compares. Whatever comes to differ is found
// within 2 × every steps. All ranks call Step equally often, after the same steps. Threads: one at a time.
class FULLDECK_RUNTIME_API ReplicaCheck {
 public:
  // `every`: at least 1.
  ReplicaCheck(Team team, int every);

  // The tensors are the same ones in each call of a round. Throws an Error on all ranks when they differ.
  void Step(const std::vector<NamedTensor>& tensors, std::uint64_t step);
  // Does the next Step begin a round?
  bool begins() const { return part_ == 0; }
  // Of the last full round; 0: none yet. Equal on all ranks.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Team team_;
  std::uint64_t every_;
  std::uint64_t part_ = 0;
  std::uint64_t hash_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace fulldeck
