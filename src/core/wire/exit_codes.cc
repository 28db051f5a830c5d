#include "wire/exit_codes.h"

namespace fulldeck::wire {

std::span<const ExitCodeRow> ExitCodes() {
  static constexpr ExitCodeRow kRows[] = {
      {ExitCode::kOk, "ok", "Everything that was asked for was done.", "Nothing."},
      {ExitCode::kFailed, "failed", "Something failed; the last line on stderr says what.", "Read that line."},
      {ExitCode::kUsage, "usage", "The command line is wrong: unknown command, unknown option or bad value.",
       "Follow the suggestion, or see fulldeck COMMAND --help."},
      {ExitCode::kBadEnvironment, "bad-environment",
       "A variable such as FULLDECK_SIMULATE or a visible-device list cannot be understood.",
       "Correct the part that the message names."},
      {ExitCode::kSourceFailed, "source-failed",
       "A card is there, but the vendor's library or tool crashed, hung or could not be read; the other vendors were "
       "shown.",
       "Read the note; fulldeck devices --timeout gives a slow library more time."},
      {ExitCode::kCrashLoop, "crash-loop",
       "fulldeck run: three attempts in a row made no progress, so no further restart was tried.",
       "Read the report of the first attempt; the cause does not go away by itself."},
      {ExitCode::kRefusedCards, "refused-cards",
       "fulldeck run: the ranks cannot be put on the cards: too few, used by another run, fallen off the bus, or a "
       "visible-device list that contradicts them.",
       "Do what the message proposes; fulldeck devices and fulldeck ps show cards and runs."},
      {ExitCode::kPortTaken, "port-taken", "fulldeck run: the port that was named for rank 0 is in use.",
       "Stop the process that the message names, or leave --master-port away."},
      {ExitCode::kHosts, "hosts", "fulldeck run: the hosts did not come together: one is missing, or was turned away.",
       "The message says who is missing and why."},
      {ExitCode::kIdleCard, "idle-card",
       "fulldeck run or train --idle-card fail: a card did no work for its rank; require: or it could not be known.",
       "The verdict names the card, its rank and the likely cause."},
      {ExitCode::kOtherVersion, "other-version",
       "The launcher and what it loads into a rank are of different versions of fulldeck.",
       "Install all parts from one version."},
      {ExitCode::kCannotStart, "cannot-start",
       "fulldeck run: the script, its interpreter, the log folder or a limit of this session does not allow a start.",
       "Correct what the message names; no rank has run."},
      {ExitCode::kLeftBehind, "left-behind",
       "fulldeck run: a process could not be killed, because the kernel holds it; the message names its pid.",
       "Look at the driver or the network disk that it waits for; a reset of the card or the host may be needed."},
      {ExitCode::kHang, "hang",
       "fulldeck run --on-hang fail, or restart with no restart left: ranks waited for one that is stuck.",
       "The verdict names the rank and its call; the stacks of all ranks are in the run's folder."},
      {ExitCode::kCheckFailed, "check-failed",
       "fulldeck doctor: at least one check failed: a run on this machine would fail, or be wrong without a word.",
       "Do what stands below the lines that say fail; fulldeck doctor --only GROUP checks again."},
      {ExitCode::kSilentError, "silent-error",
       "fulldeck run --strict: every rank ended well, and a silent error was reported: the training is likely wrong.",
       "The warnings name the failure code, the evidence and the fix."},
  };
  return kRows;
}

bool IsVerdict(int exit_code) {
  for (const ExitCodeRow& row : ExitCodes()) {
    if (static_cast<int>(row.code) == exit_code) return exit_code >= static_cast<int>(ExitCode::kBadEnvironment);
  }
  return false;
}

}  // namespace fulldeck::wire
