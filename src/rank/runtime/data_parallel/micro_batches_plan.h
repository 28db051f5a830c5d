// After a rank ran out of memory: whose parameters are valid, and which ranks have completed the step. Pure;
// communicates nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace fulldeck::runtime {

// How far a rank got in its step when a rank ran out of memory.
enum class Reached : char {
  kGradients = 'g',      // parameters and optimizer are as they were before the step
  kPartlyStepped = 'o',  // the optimizer stopped half-way
  kStepped = 's',        // the step is complete
};

struct Arrival {
  std::uint64_t run = 0;  // number of the rank's step
  Reached reached = Reached::kGradients;
};

struct RepairPlan {
  // By rank: its step counts, and is not repeated.
  std::vector<bool> is_done;
  // all ranks get this rank's parameters and optimizer state; −1: nothing is sent
  int source = -1;
  // Every rank restores its own copy from before the optimizer began.
  bool from_copies = false;
};

// Ranks differ by at most one step: a rank that has passed the vote at a step's end may be in the next step when the
// group is aborted while others are still leaving the vote. Those others have completed their step, and not begun the
// next. A step that one rank has completed used the gradients of all ranks, so it counts for all.
RepairPlan PlanRepair(const std::vector<Arrival>& arrivals);

}  // namespace fulldeck::runtime
