// Parses the error file that a script writes through torch's `record` (TORCHELASTIC_ERROR_FILE), or that any program
// may write:
//   {"message": {"message": …, "extraInfo": {"py_callstack": …, "timestamp": …}}}
//   {"message": "text", "timestamp": …}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::diagnosis {

struct ErrorFile {
  std::string message;
  std::string call_stack;
  std::optional<double> unix_seconds;
};

// nullopt if the text is not such a file.
std::optional<ErrorFile> ParseErrorFile(std::string_view text);

// The second form; whatever the message holds, the result is a valid file.
std::string FormatErrorFile(std::string_view message, std::int64_t unix_seconds);

}  // namespace fulldeck::diagnosis
