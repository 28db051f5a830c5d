// Exit codes of fulldeck itself. One table, also the source of docs/exit-codes.md. They start at 80, so that they are
// not mistaken for what a training script returned.
#pragma once

#include <span>

namespace fulldeck::wire {

enum class ExitCode {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kBadEnvironment = 80,
  kSourceFailed = 81,
  kCrashLoop = 82,
  kRefusedCards = 83,
  kPortTaken = 84,
  kHosts = 85,
  kIdleCard = 86,
  kOtherVersion = 87,
  kCannotStart = 88,
  kLeftBehind = 89,
  kHang = 90,
  kCheckFailed = 91,
  kSilentError = 92,
};

struct ExitCodeRow {
  ExitCode code;
  const char* name;
  const char* meaning;
  const char* what_to_do;
};

std::span<const ExitCodeRow> ExitCodes();

// Whether it is one of fulldeck's own codes, from 80 on. A script may exit with such a code too; the events record
// which it was.
bool IsVerdict(int exit_code);

}  // namespace fulldeck::wire
