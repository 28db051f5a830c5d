// The list of processes on a card from NVML's DeviceGetComputeRunningProcesses. The entries have had three sizes
// under the same function names (drivers around 535 changed the size without a new name), so the size is determined
// from the number of bytes that the call wrote. A list of any other size is rejected. Not for other lists of NVML.
#pragma once

#include <optional>
#include <vector>

#include "device/card_reading.h"
#include "device/libraries/library_answers.h"

namespace fulldeck::device {

// int f(device, count in and out, entries)
using NvmlProcessCall = int(void*, unsigned int*, void*);

// Absent: the call failed (which is normal: MIG, permissions) or returned invalid data (which leaves a note).
std::optional<std::vector<ProcessOnCard>> ReadNvmlProcesses(NvmlProcessCall* call, void* device,
                                                            const AnswerCheck& check);

}  // namespace fulldeck::device
