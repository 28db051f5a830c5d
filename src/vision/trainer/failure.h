// What happens when a job fails: one rank reports the reason, once, and the launcher shows it; the others exit
// silently.
#pragma once

#include <fulldeck/session.h>

#include <exception>

namespace fulldeck::trainer {

// The first rank writes the text to stderr, aborts the group so that no rank waits, and ends its process with exit code
// 1. The others fail because of it or for the same reason: they print nothing and wait for the launcher to end them, so
// that the launcher sees the first failure as the root cause. There is no final barrier, which would wait for a dead
// rank. Files in progress are durable by then if the caller has destroyed its Checkpoints. Signal handlers must be the
// defaults again.
[[noreturn]] void FailAndExit(Session& session, const std::exception& error) noexcept;

}  // namespace fulldeck::trainer
