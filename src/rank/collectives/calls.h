// The collective operations; each runs between Begin and End of its call (engine.h). Arguments have been checked; lists
// have one entry per rank if this member needs them, otherwise they are empty.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/call.h"
#include "collectives/engine.h"
#include "collectives/memory/staging.h"
#include "collectives/status.h"

namespace fulldeck::collectives {

// reducing_calls.cc
Status RunAllReduce(Engine& engine, const Call& call, Buffer input, Buffer output);
Status RunReduce(Engine& engine, const Call& call, Buffer input, Buffer output);
Status RunReduceScatter(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output);

// moving_calls.cc
Status RunBarrier(Engine& engine);
Status RunBroadcast(Engine& engine, const Call& call, Buffer buffer);
Status RunAllGather(Engine& engine, const Call& call, Buffer input, std::span<const Buffer> outputs);
Status RunGather(Engine& engine, const Call& call, Buffer input, std::span<const Buffer> outputs);
Status RunScatter(Engine& engine, const Call& call, std::span<const Buffer> inputs, Buffer output);
Status RunAllToAll(Engine& engine, const Call& call, std::span<const RankBuffer> inputs,
                   std::span<const RankBuffer> outputs);

}  // namespace fulldeck::collectives
