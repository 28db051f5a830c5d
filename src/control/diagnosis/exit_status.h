// How a rank ended, in words and as an exit code of ours.
#pragma once

#include <string>

namespace fulldeck::diagnosis {

// "SIGKILL"; "signal 99" for what has no name.
std::string SignalName(int signal_number);
// "segmentation fault: it touched memory that it does not own"; empty where the name says it all.
std::string SignalMeaning(int signal_number);

// A status as waitpid gives it.
struct ExitStatus {
  int wait_status = 0;

  bool ok() const;
  int signal_number() const;     // 0 when it exited
  int exit_code() const;         // as a shell gives it: 128 + signal for a signal
  std::string ToString() const;  // "exited with code 3", "killed by SIGSEGV (segmentation fault: …)"
};

}  // namespace fulldeck::diagnosis
