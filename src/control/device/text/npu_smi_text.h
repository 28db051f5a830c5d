// Reads the text of Ascend's `npu-smi info` (seen: 21.0 and 22.0 on 910A and 310, 23.0 to 26.0 on 910B, 24.1 and 26.0
// on boards with two chips, 22.0 to 25.2 on 310P): the card table and the table of processes. Runs no program, and does
// not read `npu-smi info -t …`.
//
// Cards here are chips, in the order printed, which is the order in which torch counts npu:0, npu:1, … among those that
// npu-smi shows. `index` is the number on the host, as in /dev/davinciN: the column Phy-ID or Device where there is
// one, else NPU where each NPU has one chip, else the place in the table. Inside a container the two may differ; a note
// says so. Memory is the HBM where the chip has some, else what stands under Memory-Usage. "MB" are MiB. A process
// keeps the number under "Process id"; where npu-smi gives another one inside the container, a note tells it. Thread
// rule: pure function.
#pragma once

#include <string_view>

#include "device/card_reading.h"

namespace fulldeck::device {

// Never fails: text that cannot be read gives cards without values, or no card, with notes that say why.
SourceReading ParseNpuSmi(std::string_view text);

}  // namespace fulldeck::device
