#include "runtime/data_parallel/micro_batches_plan.h"

#include <algorithm>

namespace fulldeck::runtime {

RepairPlan PlanRepair(const std::vector<Arrival>& arrivals) {
  std::uint64_t latest = 0;
  for (const Arrival& arrival : arrivals) latest = std::max(latest, arrival.run);
  // Relative to the latest step: a rank that has not begun it counts as before it.
  std::vector<Reached> reached;
  for (const Arrival& arrival : arrivals) {
    reached.push_back(arrival.run == latest ? arrival.reached : Reached::kGradients);
  }
  const auto first = [&](Reached wanted) {
    const auto found = std::find(reached.begin(), reached.end(), wanted);
    return found == reached.end() ? -1 : static_cast<int>(found - reached.begin());
  };
  RepairPlan plan;
  const int stepped = first(Reached::kStepped);
  const int before = first(Reached::kGradients);
  for (const Arrival& arrival : arrivals) plan.is_done.push_back(stepped >= 0 || arrival.run != latest);
  if (first(Reached::kPartlyStepped) >= 0 || (stepped >= 0 && before >= 0))
    plan.source = stepped >= 0 ? stepped : before;
  plan.from_copies = stepped < 0 && before < 0;
  return plan;
}

}  // namespace fulldeck::runtime
