// One rank of the proof of the collectives, on fulldeck's own engine: joins its group, greets, makes the steps that it
// is told, ends when the doctor is gone. Where it is stands in a file that the doctor reads when nobody answers.
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
  std::string progress;  // path; one RankProgress a rank
  std::string key;
  int rank = 0;
  int ranks = 1;
  double timeout_seconds = 60;
  std::string fault;  // for tests: see ProofFault
};

// The exit code. Dies with its parent.
int RunProofRank(const ProofRank& process);

// Where a rank is, written by it alone before it goes there; little-endian, one after another in the file.
struct RankProgress {
  enum Phase : std::uint64_t { kWaiting = 0, kPreparing, kInCall, kChecking };
  std::uint64_t place = 0;  // 8 · number of the step + phase
  std::uint64_t pid = 0;

  int step() const { return static_cast<int>(place / 8); }
  Phase phase() const { return static_cast<Phase>(place % 8); }
};
static_assert(sizeof(RankProgress) == 16);
// Zeros for ranks that have not come so far.
std::vector<RankProgress> ReadProgress(const std::string& path, int ranks);

// A fault of one rank, for tests: KIND:RANK:OPERATION[:PEER]; several with commas between them.
//   alter       changes one value of its result        contribute  changes one value of what it gives
//   exit, kill  ends before the call                   hang        never makes the call
//   stop        stops inside the call                  slow        sleeps before it answers a long message of PEER's
struct ProofFault {
  std::string kind;
  int rank = -1;
  std::string operation;
  int peer = -1;
};
base::Result<std::vector<ProofFault>> ReadProofFaults(std::string_view text);

}  // namespace fulldeck::doctor
