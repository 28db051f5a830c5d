// After one rank ran out of memory: whose parameters hold, and which ranks have done their step. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace fulldeck::runtime {

// How far a rank came in its step before memory ran out, here or elsewhere.
enum class Reached : char {
  kGradients = 'g',      // parameters and optimizer are as they were before the step
  kPartlyStepped = 'o',  // the optimizer stopped half-way
  kStepped = 's',        // the step is done
};

struct Arrival {
  std::uint64_t run = 0;  // number of the rank's step
  Reached reached = Reached::kGradients;
};

struct RepairPlan {
  // By rank: its step counts, and is not repeated.
  std::vector<bool> is_done;
  // All get this rank's parameters and optimizer state; −1: nobody's are sent.
  int source = -1;
  // Every rank goes back to its own copy from before the optimizer began.
  bool from_copies = false;
};

// Ranks differ by at most one step: who has got through the vote at a step's end may be in the next one when the group
// is aborted under those that are still on their way out of the vote. These have done their step, and not begun the
// next. A step that one rank has finished had everybody's gradients, so it counts for all.
RepairPlan PlanRepair(const std::vector<Arrival>& arrivals);

}  // namespace fulldeck::runtime
