// Random numbers that do not depend on how many ranks there are. A stream is named by what it is for: (seed, purpose,
// epoch, sample). Whichever rank, loader thread or process works on that sample gets the same numbers, at any number of
// ranks, in any order, after any resume; streams of different names are independent of each other.
//
//   fulldeck::RandomStream random(session->seed(), fulldeck::Purpose::kAugmentation, epoch, sample_index);
//   const bool flipped = random.Next64() & 1;
//   const double angle = random.Uniform(-10, 10);
//
// The generator is Philox4x32-10 (Salmon et al. 2011): a counter enciphered with a key, so a stream needs no state but
// its position. The numbers are part of the contract: they stay what they are from version to version, and are the same
// on every processor. Not for secrets.
//
// Threads: a stream is a value of its thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "fulldeck/error.h"

namespace fulldeck {

enum class Purpose : std::uint32_t {
  kDataOrder = 1,     // the sampler's; `sample` is 0
  kAugmentation = 2,  // `sample`: the sample's index in the data set
  kDropout = 3,       // `sample`: the sample's index, or whatever the masks belong to
  kWeights = 4,
  kUser = 1000,  // this and above: the program's own
};

class FULLDECK_RUNTIME_API RandomStream {
 public:
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t epoch, std::uint64_t sample);

  std::uint32_t Next32();
  std::uint64_t Next64();
  // Evenly from [0, bound), without bias; bound is not 0.
  std::uint64_t Below(std::uint64_t bound);
  // [0, 1), a multiple of 2^-53.
  double Uniform();
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  // Standard normal. Two uniforms each.
  double Normal();

  // A standard UniformRandomBitGenerator: for std::shuffle and friends (whose results differ between C++ libraries).
  using result_type = std::uint64_t;  // NOLINT(readability-identifier-naming): as <random> wants it
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return Next64(); }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;  // the lowest word counts blocks; the rest names the stream
  std::array<std::uint32_t, 4> block_ = {};
  int left_ = 0;  // words of the block that have not been given out
};

// A permutation of 0 … size−1 that takes no memory: At(i) is computed. Different for every (seed, purpose, epoch).
class FULLDECK_RUNTIME_API RandomOrder {
 public:
  // `size` 0 is an order of nothing.
  RandomOrder(std::uint64_t size, std::uint64_t seed, Purpose purpose, std::uint64_t epoch);
  std::uint64_t At(std::uint64_t position) const;  // position < size, else an Error
  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t size_;
  int half_bits_ = 1;  // the order is a cipher of numbers of twice so many bits, walked until it stays below size
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> name_;
};

// The bare generator: one block of 4 words from a counter and a key, as in the paper.
FULLDECK_RUNTIME_API std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter,
                                                         std::array<std::uint32_t, 2> key);

}  // namespace fulldeck
