// Proves a simulated card without torch: memory, busy time and faults are the card's, the computing is the processor's.
// It says so. Runs in a probe process only: a simulated card can hang.
#pragma once

namespace fulldeck::doctor {

// Of the server that FULLDECK_SIMULATE of this process describes. Lines to descriptor 3. Returns an exit code.
int ProveSimulatedCard(int card, int index, double busy_seconds);

}  // namespace fulldeck::doctor
