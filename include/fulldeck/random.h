// Random numbers that do not depend on the number of ranks. A stream is identified by what it is for: (seed, purpose,
// epoch, sample). Whichever rank, loader thread or process handles that sample gets the same numbers, with any number
// of ranks, in any order, after any resume. Streams with different identifiers are independent.
//
//   fulldeck::RandomStream random(session->seed(), fulldeck::Purpose::kAugmentation, epoch, sample_index);
//   const bool flipped = random.Next64() & 1;
//   const double angle = random.Uniform(-10, 10);
//
// The generator is Philox4x32-10 (Salmon et al. 2011), which encrypts a counter with a key, so the only state of a
// stream is its position. The numbers are part of the contract: they do not change between versions and are the same on
// every CPU. Not for cryptography.
//
// Threads: a stream is a plain value; do not share it between threads.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "fulldeck/error.h"

namespace fulldeck {

enum class Purpose : std::uint32_t {
  kDataOrder = 1,     // the sampler's; `sample` is 0
  kAugmentation = 2,  // `sample`: the sample's index in the dataset
  kDropout = 3,       // `sample`: the sample's index, or an index of whatever the masks belong to
  kWeights = 4,
  kUser = 1000,  // this and above: for programs
};

class FULLDECK_RUNTIME_API RandomStream {
 public:
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t epoch, std::uint64_t sample);

  std::uint32_t Next32();
  std::uint64_t Next64();
  // Uniform in [0, bound), without bias; bound is not 0.
  std::uint64_t Below(std::uint64_t bound);
  // [0, 1), a multiple of 2^-53.
  double Uniform();
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  // Standard normal. Consumes two uniforms per call.
  double Normal();

  // Satisfies std::uniform_random_bit_generator, for std::shuffle and the like (whose results differ between C++
  // libraries).
  using result_type = std::uint64_t;  // NOLINT(readability-identifier-naming): as <random> wants it
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return Next64(); }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;  // the lowest word counts blocks; the rest identifies the stream
  std::array<std::uint32_t, 4> block_ = {};
  int left_ = 0;  // unused words of the block
};

// A permutation of 0 … size−1 that takes no memory: At(i) is computed. Different for every (seed, purpose, epoch).
class FULLDECK_RUNTIME_API RandomOrder {
 public:
  // `size` 0 is an empty order.
  RandomOrder(std::uint64_t size, std::uint64_t seed, Purpose purpose, std::uint64_t epoch);
  std::uint64_t At(std::uint64_t position) const;  // position < size, otherwise an Error
  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t size_;
  int half_bits_ = 1;  // the order is a block cipher of 2 × half_bits_ bits, iterated until the result is below size
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> name_;
};

// The bare generator: one block of 4 words from a counter and a key, as in the paper.
FULLDECK_RUNTIME_API std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter,
                                                         std::array<std::uint32_t, 2> key);

}  // namespace fulldeck
