// What every rank did during one call, chunk by chunk: shows that stages overlap. Only for fulldeck's own engine, which
// reports it through Group::SetTrace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/library.h"

namespace fulldeck::bench {

enum class Stage { kIn, kReduce, kOut, kWait };
const char* NameOf(Stage stage);  // "in", "reduce", "out", "wait"
std::optional<Stage> FindStage(std::string_view name);

// Times are CLOCK_MONOTONIC, which is common to all ranks.
struct StageEvent {
  Stage stage = Stage::kIn;
  std::uint64_t chunk = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};

struct RankTimeline {
  std::string about;           // how the group was created: kernel, chunks, levels
  std::uint64_t begin_ns = 0;  // of the call
  std::uint64_t end_ns = 0;
  std::vector<StageEvent> events;
  std::optional<std::string> failed;
};

// Seconds that one rank, or all of them together, spent in each stage.
struct StageSums {
  double in = 0;
  double reduce = 0;
  double out = 0;
  double wait = 0;
  double wall = 0;  // of one rank; of all: from the first begin to the last end
  double work() const { return in + reduce + out; }
};
StageSums SumOf(const RankTimeline& timeline);
StageSums SumOf(const std::vector<RankTimeline>& ranks);

// Called in every rank at the same time: creates a group, makes a few calls, and returns the timeline of the last one.
// Only all_reduce; `shared` as in a measurement.
RankTimeline TraceAllReduce(const FulldeckMember& member, const Element& element, std::uint64_t bytes, bool shared);

}  // namespace fulldeck::bench
