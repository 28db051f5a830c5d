// Processes that do for the doctor what may hang, crash or print: all at the same time, each in a session of its own,
// each killed with everything that it started when it shows no sign of life. What the others said is kept.
//
// A probe writes lines to descriptor 3; a line is a sign of life. What it writes to standard output and standard error
// is kept apart, the last of it, for the message of one that failed.
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
  std::vector<std::string> arguments;  // the program by path first
  base::Environment environment;
};

struct ProbeResult {
  std::string not_started;         // why there was no process at all; empty: there was one
  bool silent = false;             // it showed no sign of life and was killed
  std::optional<int> wait_status;  // as waitpid gives it; nothing when it could not even be killed
  std::vector<std::string> lines;  // whole lines of descriptor 3
  std::string output;              // the last of what it printed, as it came

  std::string LastLine() const;  // the last line of `output`, fit to be shown

  // "was killed by signal 11 (Segmentation fault)", "ended with code 1", "did not answer within 20 s and was stopped".
  std::string DescribeEnd(base::Duration timeout) const;
};

struct ProbeTimeouts {
  base::Duration to_start;   // until the first line: interpreters and libraries take long to load
  base::Duration from_then;  // between two lines, and from the last line to the end
};

// One result a process, in the same order. `each_quarter_second` is called about that often while any of them runs,
// with the number of lines that each has written so far. Blocks; starts no thread.
std::vector<ProbeResult> RunProbes(
    const std::vector<ProbeProcess>& processes, ProbeTimeouts timeout,
    const std::function<void(const std::vector<ProbeResult>&)>& each_quarter_second = {});

}  // namespace fulldeck::doctor
