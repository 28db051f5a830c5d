#include "checkpoint/retention.h"

#include <algorithm>
#include <set>

namespace fulldeck::checkpoint {

std::vector<std::uint64_t> StepsToRemove(std::vector<KeptCheckpoint> checkpoints, const RetentionRule& rule) {
  using Trust = KeptCheckpoint::Trust;
  if (rule.last == 0) return {};
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const KeptCheckpoint& a, const KeptCheckpoint& b) { return a.step > b.step; });
  std::set<std::uint64_t> stay;
  const auto verified = std::find_if(checkpoints.begin(), checkpoints.end(),
                                     [](const KeptCheckpoint& kept) { return kept.trust == Trust::kVerified; });
  if (verified == checkpoints.end()) return {};
  stay.insert(verified->step);
  std::size_t last = 0;
  for (const KeptCheckpoint& kept : checkpoints) {
    if (kept.trust != Trust::kBad && last++ < rule.last) stay.insert(kept.step);
  }
  std::stable_sort(checkpoints.begin(), checkpoints.end(), [](const KeptCheckpoint& a, const KeptCheckpoint& b) {
    return a.score && (!b.score || *a.score > *b.score);
  });
  std::size_t best = 0;
  for (const KeptCheckpoint& kept : checkpoints) {
    if (kept.score && kept.trust != Trust::kBad && best++ < rule.best) stay.insert(kept.step);
  }
  std::vector<std::uint64_t> go;
  for (const KeptCheckpoint& kept : checkpoints) {
    const bool old_enough = kept.trust != Trust::kBad || kept.step < *stay.begin();
    if (stay.count(kept.step) == 0 && old_enough) go.push_back(kept.step);
  }
  std::sort(go.begin(), go.end());
  return go;
}

}  // namespace fulldeck::checkpoint
