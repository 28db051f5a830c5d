// Hands out stretches of an address range: first fit, neighbours merged when they come back. Knows nothing of memory:
// pages are the owner's business. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace fulldeck::collectives {

class Arena {
 public:
  Arena(std::uint64_t begin, std::uint64_t end) : end_(end) { free_[begin] = end - begin; }

  // Offset of a stretch, aligned to 64 bytes (and to huge pages where it is that long); nothing when there is no room.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  // False: this is not the begin of a stretch that was taken.
  bool GiveBack(std::uint64_t offset);
  // Does [offset, offset + bytes) lie within one stretch that is taken?
  bool Holds(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::uint64_t end_;
  std::map<std::uint64_t, std::uint64_t> free_;   // begin → bytes
  std::map<std::uint64_t, std::uint64_t> taken_;  // begin → bytes
};

}  // namespace fulldeck::collectives
