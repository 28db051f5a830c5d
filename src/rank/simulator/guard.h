// Current card, streams and events, as torch's core asks for them. A card has no queue: everything is done when its
// call returns, so that a stream is a number, an event a moment, and nothing is ever waited for.
#pragma once

namespace fulldeck::simulator {

// Once a process, after ReadServer().
void RegisterGuard();
void RegisterHooks();

}  // namespace fulldeck::simulator
