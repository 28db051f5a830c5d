// Hash: the 64-bit checksum of checkpoints, of replicas and of patched files: XXH3-64 with seed 0, as `xxhsum -H3` and
// Python's xxhash.xxh3_64 compute it. Against damage, not against forgery.
//
// The same value on every processor and in either byte order. Any damage is missed with a chance of about 2^-64.
// docs/checkpoints.md says which bytes of a checkpoint each checksum covers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::base {

// Takes data in chunks of any length; how the data are split does not change the sum. Allocates nothing; copying it
// copies the sum so far. Not thread safe.
class Hash {
 public:
  Hash();
  // `data` may be null when `bytes` is 0.
  void Add(const void* data, std::size_t bytes);
  // The checksum of all data so far; more may be added afterwards.
  std::uint64_t Sum() const;

 private:
  // An XXH3_state_t, whose header is for hash.cc only.
  alignas(64) std::byte state_[576];
};

std::uint64_t HashOf(std::string_view data);

// 16 lower-case hexadecimal digits, and back; ParseHash returns nullopt for anything else.
std::string FormatHash(std::uint64_t sum);
std::optional<std::uint64_t> ParseHash(std::string_view text);

}  // namespace fulldeck::base
