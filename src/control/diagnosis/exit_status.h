// How a rank ended, as text and as an exit code of the launcher.
#pragma once

#include <string>

namespace fulldeck::diagnosis {

// "SIGKILL"; "signal 99" for a signal without a name.
std::string SignalName(int signal_number);
// "segmentation fault: it touched memory that it does not own"; empty if the name is sufficient.
std::string SignalMeaning(int signal_number);

// A status as returned by waitpid.
struct ExitStatus {
  int wait_status = 0;

  bool ok() const;
  int signal_number() const;     // 0 if it exited
  int exit_code() const;         // as in a shell: 128 + signal number for a signal
  std::string ToString() const;  // "exited with code 3", "killed by SIGSEGV (segmentation fault: …)"
};

}  // namespace fulldeck::diagnosis
