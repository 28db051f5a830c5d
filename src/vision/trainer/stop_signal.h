// SIGTERM and SIGUSR1 as a request to stop at the next step, with a checkpoint. The handler only records the signal;
// the loop polls it, and the ranks agree on the step.
#pragma once

#include <string>

namespace fulldeck::trainer {

// While an instance exists, the two signals are recorded instead of ending the process. At most one instance at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal received during the lifetime of the current (or last) instance; 0: none. Thread-safe.
  static int Received();
};

// "SIGTERM", "SIGUSR1", "signal 7".
std::string SignalName(int number);

// The exit code of a rank that stopped for this signal and saved: 128 + number for SIGTERM, as for any process that a
// signal stopped (docs/exit-codes.md); 0 for SIGUSR1, because the sender asked for exactly this and the run must not be
// restarted.
int ExitCodeAfter(int signal_number);

}  // namespace fulldeck::trainer
