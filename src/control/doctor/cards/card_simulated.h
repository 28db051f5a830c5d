// Probes a simulated card without torch: memory, busy time and faults are the card's, but the CPU computes, and the
// output says so. Runs only in a probe process: a simulated card can hang.
#pragma once

namespace fulldeck::doctor {

// For a card of the simulated server in FULLDECK_SIMULATE. Writes lines to descriptor 3. Returns an exit code.
int ProveSimulatedCard(int card, int index, double busy_seconds);

}  // namespace fulldeck::doctor
