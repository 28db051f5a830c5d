// Runs tasks of the doctor that may hang, crash or print in processes: all at the same time, each in its own session. A
// process without a heartbeat within its limit is killed with everything that it started. The output of the others is
// kept.
//
// A probe writes lines to descriptor 3; each line is a heartbeat. The end of its standard output and standard error is
// kept separately, for the message about a failed probe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"

namespace fulldeck::doctor {

inline constexpr int kProbeAnswerFd = 3;

struct ProbeProcess {
  std::vector<std::string> arguments;  // starts with the program's path
  base::Environment environment;
};

struct ProbeResult {
  std::string not_started;         // why no process could be started; empty: it was started
  bool silent = false;             // it sent no heartbeat in time and was killed
  std::optional<int> wait_status;  // as returned by waitpid; nullopt if it could not even be killed
  std::vector<std::string> lines;  // complete lines of descriptor 3
  std::string output;              // the end of its output, unchanged

  std::string LastLine() const;  // the last line of `output`, printable

  // "was killed by signal 11 (Segmentation fault)", "ended with code 1", "did not answer within 20 s and was stopped".
  std::string DescribeEnd(base::Duration timeout) const;
};

struct ProbeTimeouts {
  base::Duration to_start;   // until the first line: interpreters and libraries take long to load
  base::Duration from_then;  // between two lines, and from the last line to the exit
};

// One result per process, in the same order. `each_quarter_second` is called about that often while any of them runs,
// with the lines that each has written so far. Blocks; starts no thread.
std::vector<ProbeResult> RunProbes(
    const std::vector<ProbeProcess>& processes, ProbeTimeouts timeout,
    const std::function<void(const std::vector<ProbeResult>&)>& each_quarter_second = {});

}  // namespace fulldeck::doctor
