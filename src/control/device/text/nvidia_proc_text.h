// Reads the two text files that NVIDIA's kernel module shows without any library: /proc/driver/nvidia/version, and
// /proc/driver/nvidia/gpus/<address>/information. Layouts from 384 to 580, the proprietary and the open module. They
// hold identity only: memory, power, temperature and processes come from NVML. Opens no file. Thread rule: pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/card_reading.h"

namespace fulldeck::device {

// "580.159.04" out of the line "NVRM version: …".
std::optional<std::string> ParseNvidiaVersion(std::string_view text);

// `text` is the whole file with its last line end; a last line without one counts as cut off. `index` is the Device
// Minor, the N of /dev/nvidiaN, which need not be the number that CUDA or nvidia-smi gives the card: match by
// `pci_address` or `uuid`. `firmware` is the Video BIOS. What the driver writes as question marks, because the card is
// not initialised yet, is absent. Old modules print no Device Minor. Never fails: notes say what could not be read.
CardReading ParseNvidiaInformation(std::string_view text);

}  // namespace fulldeck::device
