// SIGTERM and SIGUSR1 as a request to stop at the next step, with a checkpoint. The handler only notes the signal; the
// loop asks, and the ranks agree on the step together.
#pragma once

#include <string>

namespace fulldeck::trainer {

// While one lives, the two signals are noted instead of ending the process. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first that came while the last of these lived (or lives); 0: none. Any thread.
  static int Received();
};

// "SIGTERM", "SIGUSR1", "signal 7".
std::string SignalName(int number);

// What a rank returns after it stopped for this signal and saved: 128 + number for SIGTERM, as everything that a signal
// stopped (docs/exit-codes.md); 0 for SIGUSR1, with which a program asks for this very thing, so that nobody starts the
// run again.
int ExitCodeAfter(int signal_number);

}  // namespace fulldeck::trainer
