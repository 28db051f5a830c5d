// Who uses a card: processes that have its device node open, with owner and command line. Reads /proc only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/files/system_root.h"
#include "device/card.h"

namespace fulldeck::device {

// Adds user and command to holders that a source named by pid, and finds the holders of cards for which no source could
// name any by walking /proc/PID/fd. Where other users' processes cannot be looked into and nothing was found, the
// answer stays absent.
void FillHolders(const base::SystemRoot& root, std::vector<Card*> cards);

}  // namespace fulldeck::device
