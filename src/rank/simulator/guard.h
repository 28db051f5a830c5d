// Current card, streams and events, as torch's core requires them. A card has no queue: all work is done when its call
// returns. So a stream is just a number, an event a point in time, and no wait ever blocks.
#pragma once

namespace fulldeck::simulator {

// Call it once per process, after ReadServer().
void RegisterGuard();
void RegisterHooks();

}  // namespace fulldeck::simulator
