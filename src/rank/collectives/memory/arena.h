// Allocates ranges of an address space: first fit; adjacent free ranges are merged. Does not touch the memory itself:
// pages are up to the owner. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace fulldeck::collectives {

class Arena {
 public:
  Arena(std::uint64_t begin, std::uint64_t end) : end_(end) { free_[begin] = end - begin; }

  // Offset of a range, aligned to 64 bytes (to huge pages if it is at least that long); nullopt if there is no space.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  // False: no allocated range begins at this offset.
  bool GiveBack(std::uint64_t offset);
  // Whether [offset, offset + bytes) is within one allocated range.
  bool Holds(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::uint64_t end_;
  std::map<std::uint64_t, std::uint64_t> free_;   // begin → bytes
  std::map<std::uint64_t, std::uint64_t> taken_;  // begin → bytes
};

}  // namespace fulldeck::collectives
