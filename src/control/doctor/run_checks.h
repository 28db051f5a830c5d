// Runs checks, each (or each family) in its own process: a check that crashes, hangs or blocks in the kernel loses only
// its own result.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "doctor/check.h"

namespace fulldeck::doctor {

struct CheckReport {
  const Check* check = nullptr;
  std::vector<Finding> findings;  // empty: the check does not apply here
  base::Duration took{};
};

// Runs those of `checks` that apply to the machine (only_deep ones only with --deep), in their order; the reports point
// into `checks`. Several run at the same time; deep ones run one after the other, because they measure. A check that
// exceeds its limit is killed and reported as "cannot tell", as is one that dies; none of its processes is left
// running, unless it is blocked in the kernel. Call it from a single-threaded process: it forks.
std::vector<CheckReport> RunChecks(std::span<const Check> checks, const MachineUnderTest& machine, int at_a_time = 4);

}  // namespace fulldeck::doctor
