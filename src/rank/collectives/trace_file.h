// FULLDECK_COLLECTIVES_TRACE=FOLDER: every group writes the timing of its calls to FOLDER/GROUP.RANK.PID.jsonl, one
// object per call: {"call", "what", "begin_ns", "end_ns", "events": [["in"|"reduce"|"out"|"wait", chunk, begin_ns,
// end_ns], …]}. Times are CLOCK_MONOTONIC, so those of all ranks of one node are comparable. For analyzing slow calls;
// it costs one write per call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "collectives/call.h"
#include "collectives/group.h"

namespace fulldeck::collectives {

class TraceFile {
 public:
  static base::Result<std::unique_ptr<TraceFile>> Create(const std::string& folder, const std::string& group, int rank);
  // One thread at a time. A full disk loses lines but has no other effect.
  void Write(std::uint64_t sequence, const Call& call, std::uint64_t begin_ns, std::uint64_t end_ns,
             std::span<const TraceEvent> events);

 private:
  explicit TraceFile(base::UniqueFd file) : file_(std::move(file)) {}
  base::UniqueFd file_;
};

}  // namespace fulldeck::collectives
