// Reads the text of Enflame's efsmi: its main table in the layouts seen so far (1.20 on T20, 1.2.0 on S60, 1.6.3 on
// S60G, 1.7.2 on L300), and `efsmi --dmon -c 1`. Runs no program. Does not read `efsmi -q`, whose full layout is not
// known.
//
// The card's identity: newer tables title it SN, T20's table titles it UUID. A value titled UUID is stored in `uuid`
// and also in `serial`, because it is the only identity that the vendor prints for the card.
// Thread rule: pure functions.
#pragma once

#include <string_view>

#include "device/card_reading.h"

namespace fulldeck::device {

// Never fails: unreadable text gives cards without values, or no card, with notes that say why.
SourceReading ParseEfsmi(std::string_view text);

// Index, power, temperature, utilization, state and the share of memory in use; total memory if there is a Mem
// column.
SourceReading ParseEfsmiDmon(std::string_view text);

}  // namespace fulldeck::device
