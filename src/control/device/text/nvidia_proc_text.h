// Reads the two text files that NVIDIA's kernel module provides without any library: /proc/driver/nvidia/version, and
// /proc/driver/nvidia/gpus/<address>/information. Layouts from 384 to 580, the proprietary and the open module. They
// contain identity only: memory, power, temperature and processes come from NVML. Opens no file. Thread rule: pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/card_reading.h"

namespace fulldeck::device {

// Extracts "580.159.04" from the line "NVRM version: …".
std::optional<std::string> ParseNvidiaVersion(std::string_view text);

// `text` is the whole file including its last line ending; a last line without one counts as truncated. `index` is
// the Device Minor, the N of /dev/nvidiaN, which may differ from the number that CUDA or nvidia-smi gives the card:
// match by `pci_address` or `uuid`. `firmware` is the Video BIOS. Values that the driver prints as question marks,
// because the card is not initialized yet, are absent. Old modules print no Device Minor. Never fails: notes say what
// could not be read.
CardReading ParseNvidiaInformation(std::string_view text);

}  // namespace fulldeck::device
