// Runs checks, each (or each family of them) in a process of its own: one that crashes, hangs or waits in the kernel
// costs its own answer and nothing else.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "doctor/check.h"

namespace fulldeck::doctor {

struct CheckReport {
  const Check* check = nullptr;
  std::vector<Finding> findings;  // none: the question does not arise here
  base::Duration took{};
};

// Those of `checks` that suit the machine (only_deep ones with --deep alone), in their order; the reports point into
// `checks`. Several run at a time; the deep ones one after the other, as they measure. A check that takes longer than
// its limit is killed and "cannot tell", and so is one that dies; nothing of it is left running, unless the kernel
// holds it. To be called with a single thread: it forks.
std::vector<CheckReport> RunChecks(std::span<const Check> checks, const MachineUnderTest& machine, int at_a_time = 4);

}  // namespace fulldeck::doctor
