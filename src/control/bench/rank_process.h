// The main function of a rank process of the bench: joins its group, greets, executes commands, exits when the bench is
// gone.
#pragma once

#include <optional>
#include <string>

#include "bench/library.h"

namespace fulldeck::bench {

struct RankProcess {
  std::string socket;
  std::optional<FulldeckMember> fulldeck;  // nullopt: a rank that mpirun started
};

// Returns the exit code. Exits with its parent.
int RunRankProcess(const RankProcess& process);

}  // namespace fulldeck::bench
