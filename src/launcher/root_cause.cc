#include "launcher/root_cause.h"

#include <tuple>

namespace fulldeck::launcher {
namespace {

bool Began(const RankEnding& one, const RankEnding& other) {
  const bool both_stamped = one.error_seconds && other.error_seconds;
  if (both_stamped && *one.error_seconds != *other.error_seconds) return *one.error_seconds < *other.error_seconds;
  if (one.after_stop != other.after_stop) return !one.after_stop;
  const auto key = [](const RankEnding& ending) {
    return std::make_tuple(ending.order, ending.ending.signal_number() == 0, ending.local_rank);
  };
  return key(one) < key(other);
}

}  // namespace

std::optional<std::size_t> RootCause(const std::vector<RankEnding>& endings) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < endings.size(); ++i) {
    if (endings[i].ending.ok()) continue;
    if (!first || Began(endings[i], endings[*first])) first = i;
  }
  return first;
}

}  // namespace fulldeck::launcher
