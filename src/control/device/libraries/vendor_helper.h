// The helper process: `fulldeck vendor-helper KIND CANDIDATE…`. It loads one vendor library, isolated from the main
// process, and sends readings over a separate descriptor, so that output printed by the library does no harm.
//
// Protocol: for every byte that the helper reads from standard input, it writes a BytesHeader ("FDHELPER") and that
// many bytes of JSON. It exits at end of file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/card_reading.h"
#include "device/source.h"

namespace fulldeck::device {

inline constexpr int kHelperAnswerFd = 3;
inline constexpr char kHelperMagic[] = "FDHELPER";
inline constexpr std::uint32_t kHelperVersion = 1;
inline constexpr std::uint32_t kHelperLongestAnswer = 1U << 20;

// The helper's main. Returns an exit code.
int RunVendorHelper(LibraryKind kind, const std::vector<std::string>& candidates);

// A reading, or the error that replaces it, as the JSON that is sent over the pipe.
std::string EncodeAnswer(const base::Result<SourceReading>& answer);
base::Result<SourceReading> DecodeAnswer(const std::string& json);

}  // namespace fulldeck::device
