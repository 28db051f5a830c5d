// The helper process: `fulldeck vendor-helper KIND CANDIDATE…`. It loads one vendor library, far from anything that
// matters, and sends readings over a descriptor of its own, so that what the library prints does no harm.
//
// Bytes: the helper writes a BytesHeader ("FDHELPER") and that many bytes of JSON for every byte that it reads from
// standard input, and ends at its end.
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

// A reading, or the error that took its place, as the JSON that crosses the pipe.
std::string EncodeAnswer(const base::Result<SourceReading>& answer);
base::Result<SourceReading> DecodeAnswer(const std::string& json);

}  // namespace fulldeck::device
