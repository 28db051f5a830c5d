#include "bench/timeline.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>

#include "bench/pattern.h"
#include "collectives/group.h"

namespace fulldeck::bench {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kCalls = 5;

struct StageName {
  Stage stage;
  const char* name;
};
constexpr StageName kStages[] = {
    {Stage::kIn, "in"}, {Stage::kReduce, "reduce"}, {Stage::kOut, "out"}, {Stage::kWait, "wait"}};

Stage StageOf(collectives::TraceEvent::Kind kind) {
  switch (kind) {
    case collectives::TraceEvent::Kind::kIn:
      return Stage::kIn;
    case collectives::TraceEvent::Kind::kReduce:
      return Stage::kReduce;
    case collectives::TraceEvent::Kind::kOut:
      return Stage::kOut;
    case collectives::TraceEvent::Kind::kWait:
      break;
  }
  return Stage::kWait;
}

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

double Seconds(std::uint64_t begin_ns, std::uint64_t end_ns) {
  return end_ns > begin_ns ? static_cast<double>(end_ns - begin_ns) * 1e-9 : 0;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

const char* NameOf(Stage stage) {
  for (const StageName& row : kStages) {
    if (row.stage == stage) return row.name;
  }
  return "";
}

std::optional<Stage> FindStage(std::string_view name) {
  for (const StageName& row : kStages) {
    if (name == row.name) return row.stage;
  }
  return std::nullopt;
}

StageSums SumOf(const RankTimeline& timeline) {
  StageSums sums;
  sums.wall = Seconds(timeline.begin_ns, timeline.end_ns);
  for (const StageEvent& event : timeline.events) {
    const double took = Seconds(event.begin_ns, event.end_ns);
    switch (event.stage) {
      case Stage::kIn:
        sums.in += took;
        break;
      case Stage::kReduce:
        sums.reduce += took;
        break;
      case Stage::kOut:
        sums.out += took;
        break;
      case Stage::kWait:
        sums.wait += took;
        break;
    }
  }
  return sums;
}

StageSums SumOf(const std::vector<RankTimeline>& ranks) {
  StageSums sums;
  if (ranks.empty()) return sums;
  std::uint64_t begin = ranks.front().begin_ns;
  std::uint64_t end = ranks.front().end_ns;
  for (const RankTimeline& rank : ranks) {
    const StageSums one = SumOf(rank);
    sums.in += one.in;
    sums.reduce += one.reduce;
    sums.out += one.out;
    sums.wait += one.wait;
    begin = std::min(begin, rank.begin_ns);
    end = std::max(end, rank.end_ns);
  }
  sums.wall = Seconds(begin, end);
  return sums;
}

RankTimeline TraceAllReduce(const FulldeckMember& member, const Element& element, std::uint64_t bytes, bool shared) {
  RankTimeline timeline;
  collectives::GroupOptions options;
  options.rank = member.rank;
  options.size = member.ranks;
  options.name = "bench timeline";
  options.key = member.key;
  options.timeout = std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(member.timeout_seconds));
  const auto made = collectives::Group::Create(options);
  if (!made.group) {
    timeline.failed = made.status.text();
    return timeline;
  }
  collectives::Group& group = *made.group;
  timeline.about = group.Describe();

  std::unique_ptr<std::byte, Free> own;
  std::byte* data = nullptr;
  if (shared) {
    const auto allocation = group.Allocate(bytes);
    if (allocation.memory == nullptr) {
      timeline.failed = allocation.status.text();
      return timeline;
    }
    data = static_cast<std::byte*>(allocation.memory);
  } else {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0) {
      timeline.failed = "memory cannot be had";
      return timeline;
    }
    own.reset(static_cast<std::byte*>(memory));
    data = own.get();
  }

  group.SetTrace([&](std::span<const collectives::TraceEvent> events) {
    timeline.events.clear();
    for (const collectives::TraceEvent& event : events) {
      timeline.events.push_back({StageOf(event.kind), event.chunk, event.begin_ns, event.end_ns});
    }
  });
  Pattern pattern(element, member.ranks);
  const std::uint64_t count = bytes / element.bytes;
  for (std::uint64_t call = 0; call < kCalls; ++call) {
    pattern.Write(data, count, member.rank, 0, call);
    if (const auto barrier = group.Barrier(); !barrier.ok()) {
      timeline.failed = barrier.text();
      return timeline;
    }
    timeline.begin_ns = NowNs();
    const auto done =
        group.AllReduce(collectives::Buffer::Host(data), collectives::Buffer::Host(data), count,
                        static_cast<collectives::Datatype>(element.datatype), collectives::Reduction::kSum);
    timeline.end_ns = NowNs();
    if (!done.ok()) {
      timeline.failed = done.text();
      return timeline;
    }
    if (pattern.Check(data, count, Pattern::kSumOfAll, 0, call)) {
      timeline.failed = "the result is wrong";
      return timeline;
    }
  }
  group.SetTrace(nullptr);
  return timeline;
}

}  // namespace fulldeck::bench
