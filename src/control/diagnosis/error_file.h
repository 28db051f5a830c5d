// The error file that a script writes through torch's `record` (TORCHELASTIC_ERROR_FILE), or that any program may
// write:
// {"message": {"message": …, "extraInfo": {"py_callstack": …, "timestamp": …}}} or {"message": "text", "timestamp": …}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::diagnosis {

struct ErrorFile {
  std::string message;
  std::string call_stack;
  std::optional<double> unix_seconds;
};

// Nothing when the text is not such a file.
std::optional<ErrorFile> ParseErrorFile(std::string_view text);

}  // namespace fulldeck::diagnosis
