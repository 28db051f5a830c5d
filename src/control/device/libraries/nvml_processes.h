// The list of processes on a card as NVML's DeviceGetComputeRunningProcesses gives it. The entries have had three sizes
// under the same function names (drivers around 535 changed the size without a new name), so the size is measured from
// what the call wrote, and a list of any other size is not believed. Not for other lists of NVML.
#pragma once

#include <optional>
#include <vector>

#include "device/card_reading.h"
#include "device/libraries/library_answers.h"

namespace fulldeck::device {

// int f(device, count in and out, entries)
using NvmlProcessCall = int(void*, unsigned int*, void*);

// Absent: the call failed (which is ordinary: MIG, permissions) or answered nonsense (which leaves a note).
std::optional<std::vector<ProcessOnCard>> ReadNvmlProcesses(NvmlProcessCall* call, void* device,
                                                            const AnswerCheck& check);

}  // namespace fulldeck::device
