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
  };
  return kRows;
}

}  // namespace fulldeck::wire
