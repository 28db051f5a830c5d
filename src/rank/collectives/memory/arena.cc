#include "collectives/memory/arena.h"

#include <algorithm>
#include <iterator>

#include "collectives/memory/chunks.h"
#include "collectives/memory/segment_layout.h"

namespace fulldeck::collectives {

std::optional<std::uint64_t> Arena::Take(std::uint64_t bytes) {
  if (bytes > end_) return std::nullopt;  // the rounding below would overflow
  const std::uint64_t alignment = bytes >= kHugePage ? kHugePage : kRangeAlignment;
  const std::uint64_t rounded = RoundUp(std::max<std::uint64_t>(bytes, 1), kRangeAlignment);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const std::uint64_t begin = RoundUp(it->first, alignment);
    const std::uint64_t free_end = it->first + it->second;
    if (begin > free_end || free_end - begin < rounded) continue;
    const std::uint64_t free_begin = it->first;
    free_.erase(it);
    if (begin > free_begin) free_[free_begin] = begin - free_begin;
    if (free_end > begin + rounded) free_[begin + rounded] = free_end - begin - rounded;
    taken_[begin] = rounded;
    return begin;
  }
  return std::nullopt;
}

bool Arena::GiveBack(std::uint64_t offset) {
  const auto it = taken_.find(offset);
  if (it == taken_.end()) return false;
  std::uint64_t begin = it->first;
  std::uint64_t bytes = it->second;
  taken_.erase(it);
  const auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + bytes) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto behind = free_.lower_bound(begin);
  if (behind != free_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  free_[begin] = bytes;
  return true;
}

bool Arena::Holds(std::uint64_t offset, std::uint64_t bytes) const {
  auto it = taken_.upper_bound(offset);
  if (it == taken_.begin()) return false;
  --it;
  return offset - it->first <= it->second && bytes <= it->second - (offset - it->first);
}

}  // namespace fulldeck::collectives
