// One rank of `fulldeck doctor --collectives`, on fulldeck's own engine: joins its group, greets, executes the steps
// that it receives, exits when the doctor is gone. Its position is in a file that the doctor reads if ranks do not
// answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fulldeck::doctor {

struct ProofRank {
  std::string socket;
  std::string progress;  // path; one RankProgress per rank
  std::string key;
  int rank = 0;
  int ranks = 1;
  double timeout_seconds = 60;
  std::string fault;  // for tests: see ProofFault
};

// Returns the exit code. Exits with its parent.
int RunProofRank(const ProofRank& process);

// The position of a rank. Only the rank writes its record, before it enters the phase. Little-endian, consecutive in
// the file.
struct RankProgress {
  enum Phase : std::uint64_t { kWaiting = 0, kPreparing, kInCall, kChecking };
  std::uint64_t place = 0;  // 8 · number of the step + phase
  std::uint64_t pid = 0;

  int step() const { return static_cast<int>(place / 8); }
  Phase phase() const { return static_cast<Phase>(place % 8); }
};
static_assert(sizeof(RankProgress) == 16);
// Zeros for ranks that have not written a record yet.
std::vector<RankProgress> ReadProgress(const std::string& path, int ranks);

// A fault of one rank, for tests: KIND:RANK:OPERATION[:PEER]; several are separated by commas.
//   alter       changes one value of its result        contribute  changes one value of its input
//   exit, kill  ends before the call                   hang        never makes the call
//   stop        stops inside the call                  slow        sleeps before it answers a long message from PEER
struct ProofFault {
  std::string kind;
  int rank = -1;
  std::string operation;
  int peer = -1;
};
base::Result<std::vector<ProofFault>> ReadProofFaults(std::string_view text);

}  // namespace fulldeck::doctor
