// When a job fails: one rank says why, once, and the launcher shows that; the others leave quietly.
#pragma once

#include <fulldeck/session.h>

#include <exception>

namespace fulldeck::trainer {

// The rank that comes first writes the text to stderr, then ends the others' waits in the group and its own process,
// with code 1. The others fail because it did, or for the same reason: they say nothing, and wait a while for the
// launcher to end them, which so sees who began. Nobody takes a farewell, in which a rank that died would be waited
// for. Files that were being written are durable by then, if the caller has let go of its Checkpoints. Signals must
// have their usual effect.
[[noreturn]] void FailAndExit(Session& session, const std::exception& error) noexcept;

}  // namespace fulldeck::trainer
