// The whole life of one rank of the bench: joins its group, greets, does what it is told, ends when the bench is gone.
#pragma once

#include <optional>
#include <string>

#include "bench/library.h"

namespace fulldeck::bench {

struct RankProcess {
  std::string socket;
  std::optional<FulldeckMember> fulldeck;  // nothing: a rank that mpirun started
};

// The exit code. Dies with its parent.
int RunRankProcess(const RankProcess& process);

}  // namespace fulldeck::bench
