// Finds the processes that use a card, that is, have its device node open, with owner and command line. Reads /proc
// only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/files/system_root.h"
#include "device/card.h"

namespace fulldeck::device {

// Adds user and command to holders that a source reported by pid. For cards without holders from a source, finds them
// by walking /proc/PID/fd. If processes of other users cannot be read and no holder was found, the value stays
// absent.
void FillHolders(const base::SystemRoot& root, std::vector<Card*> cards);

}  // namespace fulldeck::device
