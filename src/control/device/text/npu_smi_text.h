// Reads the text of Ascend's `npu-smi info` (seen: 21.0 and 22.0 on 910A and 310, 23.0 to 26.0 on 910B, 24.1 and 26.0
// on boards with two chips, 22.0 to 25.2 on 310P): the card table and the table of processes. Runs no program. Does
// not read `npu-smi info -t …`.
//
// Cards here are chips, in the order printed, which is the order in which torch numbers npu:0, npu:1, … among those
// that npu-smi shows. `index` is the number on the machine, as in /dev/davinciN: the column Phy-ID or Device if there
// is one; otherwise NPU, if each NPU has one chip; otherwise the position in the table. Inside a container the two
// may differ; a note says so. Memory is the HBM if the chip has any, otherwise the value under Memory-Usage. "MB"
// means MiB. A process keeps the number under "Process id"; if npu-smi prints a different one inside the container, a
// note contains it. Thread rule: pure function.
#pragma once

#include <string_view>

#include "device/card_reading.h"

namespace fulldeck::device {

// Never fails: unreadable text gives cards without values, or no card, with notes that say why.
SourceReading ParseNpuSmi(std::string_view text);

}  // namespace fulldeck::device
