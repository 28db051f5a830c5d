// collectives_soak: many random calls of every kind, in several concurrent groups, with all results checked. Ranks are
// processes, or threads of one process (for the thread sanitizer). The same seed makes the same calls.
//
//   collectives_soak [--calls N] [--ranks N] [--seed N] [--threads] [--seconds N]
//
// On every rank one thread drives the world group and a second one drives the groups that the rank shares with some of
// the others (halves, evens and odds, neighbors), while a third exchanges messages with all. N calls are made in total,
// each counted once however many ranks take part. The last line is "N calls, N messages, N bytes …"; the exit code is 0
// only if everything was correct.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "collectives/group.h"
#include "collectives/testing/problem.h"
#include "collectives/testing/ranks.h"

namespace {

using fulldeck::collectives::Buffer;
using fulldeck::collectives::CanReduce;
using fulldeck::collectives::Datatype;
using fulldeck::collectives::Group;
using fulldeck::collectives::GroupOptions;
using fulldeck::collectives::Nonfinite;
using fulldeck::collectives::Operation;
using fulldeck::collectives::Reduction;
using fulldeck::collectives::Status;
using fulldeck::testing::Draws;
using fulldeck::testing::MakeProblem;
using fulldeck::testing::Mix;
using fulldeck::testing::OptionsOf;
using fulldeck::testing::Placement;
using fulldeck::testing::Problem;
using fulldeck::testing::Solve;

struct Settings {
  std::uint64_t calls = 10000;
  int ranks = 4;
  std::uint64_t seed = 1;
  bool threads = false;
  int seconds = 3600;  // after this time it counts as hung
  std::string run;     // unique to the run
};

// Totals over all ranks; in shared memory when ranks are processes.
struct Sums {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<int> wrong{0};
  char first_wrong[4096] = {};
};

void Complain(Sums& sums, const std::string& what) {
  if (sums.wrong.fetch_add(1) == 0) std::strncpy(sums.first_wrong, what.c_str(), sizeof sums.first_wrong - 1);
}

struct GroupPlan {
  std::string name;
  std::vector<int> members;
  std::uint64_t calls = 0;
  GroupOptions options;
};

// The groups of a run and their calls. The same on every rank.
std::vector<GroupPlan> PlanGroups(const Settings& settings) {
  std::vector<GroupPlan> plans(1);
  const int ranks = settings.ranks;
  plans[0].name = "world";
  for (int rank = 0; rank < ranks; ++rank) plans[0].members.push_back(rank);
  const auto add = [&](const std::string& name, auto wanted) {
    GroupPlan plan{name, {}, 0, {}};
    for (int rank = 0; rank < ranks; ++rank) {
      if (wanted(rank)) plan.members.push_back(rank);
    }
    plans.push_back(std::move(plan));
  };
  add("low", [&](int rank) { return rank < ranks / 2; });
  add("high", [&](int rank) { return rank >= ranks / 2; });
  add("even", [](int rank) { return rank % 2 == 0; });
  add("odd", [](int rank) { return rank % 2 == 1; });
  add("ends", [&](int rank) { return rank == 0 || rank == ranks - 1; });
  Draws draws(settings.seed);
  for (GroupPlan& plan : plans) {
    // The world group makes half of all calls.
    plan.calls = &plan == plans.data() ? settings.calls / 2 : settings.calls / 2 / (plans.size() - 1);
    plan.options.name = settings.run + " " + plan.name;
    plan.options.key = settings.run;
    plan.options.timeout = std::chrono::seconds(settings.seconds);
    plan.options.chunk_bytes = std::uint64_t{4096} << draws.Below(3);
    plan.options.check_finite = draws.OneIn(2);
    plan.options.use_pidfd = draws.OneIn(2);
    plan.options.first_barrier = static_cast<std::uint32_t>(0 - draws.Below(20000));
    if (plan.members.size() >= 4 && draws.OneIn(2)) {
      for (std::size_t i = 0; i < plan.members.size(); ++i)
        plan.options.nodes.push_back(i < plan.members.size() / 2 ? 0 : 1);
    }
  }
  plans[0].calls = settings.calls;
  for (const GroupPlan& plan : plans) {
    if (&plan != plans.data()) plans[0].calls -= plan.calls;
  }
  return plans;
}

Problem AnyProblem(int size, std::uint64_t seed) {
  Draws draws(seed);
  const auto operation = static_cast<Operation>(1 + draws.Below(9));
  const Datatype datatype = fulldeck::testing::kDatatypes[draws.Below(std::size(fulldeck::testing::kDatatypes))];
  Reduction reduction = Reduction::kSum;
  do {
    reduction = fulldeck::testing::kReductions[draws.Below(std::size(fulldeck::testing::kReductions))];
  } while (!CanReduce(datatype, reduction));
  // From 0 bytes to many chunks, with all orders of magnitude equally frequent.
  const std::uint64_t bytes = draws.OneIn(20) ? 0 : draws.Below(std::uint64_t{64} << draws.Below(11));
  return MakeProblem(operation, datatype, reduction, static_cast<int>(draws.Below(static_cast<std::uint64_t>(size))),
                     bytes / BytesOf(datatype), size, seed);
}

Placement AnyPlacement(Draws& draws, std::uint64_t mood) {
  using Kind = Placement::Kind;
  // Usually all ranks have the same kind of buffer, since some code paths require that; otherwise each draws its own.
  const auto any = [&] { return static_cast<Kind>(draws.Below(3)); };
  switch (mood) {
    case 0:
      return {};
    case 1:
      return {Kind::kShared, Kind::kShared, true, static_cast<unsigned>(draws.Below(3))};
    case 2:
      return {Kind::kCard, Kind::kCard, draws.OneIn(2)};
    default:
      return {any(), any(), draws.OneIn(2), static_cast<unsigned>(draws.Below(65))};
  }
}

// A reduction of ones with one NaN: rank and element must be recorded, the same on all members.
std::string CheckNonfinite(Group& group, std::uint64_t seed) {
  Draws draws(seed);
  const std::uint64_t count = 1 + draws.Below(20000);
  const std::uint64_t element = draws.Below(count);
  const int culprit = static_cast<int>(draws.Below(static_cast<std::uint64_t>(group.size())));
  std::vector<float> values(count, 1);
  if (group.rank() == culprit) values[element] = std::nanf("");
  const Buffer buffer = Buffer::Host(values.data());
  const Status status = group.AllReduce(buffer, buffer, count, Datatype::kFloat32, Reduction::kSum);
  if (!status.ok()) return status.text();
  const std::optional<Nonfinite> note = group.LastNonfinite();
  if (!note) return "a NaN was not noted";
  if (note->rank != culprit || note->element != element) {
    return "a NaN of rank " + std::to_string(culprit) + " at " + std::to_string(element) + " was noted as of rank " +
           std::to_string(note->rank) + " at " + std::to_string(note->element);
  }
  return "";
}

void Drive(const Settings& settings, const std::vector<GroupPlan>& plans,
           const std::vector<std::unique_ptr<Group>>& groups, bool world, int rank, Sums& sums) {
  // The groups of this thread take turns in proportion to their numbers of calls, which is the same order on every rank
  // that shares them.
  const std::size_t first = world ? 0 : 1;
  const std::size_t last = world ? 1 : plans.size();
  Draws own(Mix(settings.seed) + static_cast<std::uint64_t>(rank) * 2 + first);
  std::uint64_t most = 0;
  for (std::size_t i = first; i < last; ++i) most = std::max(most, plans[i].calls);
  for (std::uint64_t call = 0; call < most; ++call) {
    for (std::size_t i = first; i < last; ++i) {
      if (groups[i] == nullptr || call >= plans[i].calls) continue;
      if (sums.wrong.load() != 0) return;
      Group& group = *groups[i];
      const std::uint64_t seed = Mix(settings.seed + (std::uint64_t{i} << 40) + call);
      std::string wrong;
      std::uint64_t bytes = 0;
      if (plans[i].options.check_finite && seed % 50 == 0) {
        wrong = CheckNonfinite(group, seed);
      } else {
        const Problem problem = AnyProblem(group.size(), seed);
        wrong = Solve(group, problem, AnyPlacement(own, seed >> 32 & 3));
        bytes = problem.inputs[static_cast<std::size_t>(group.rank())].size();
      }
      sums.bytes += bytes;
      if (group.rank() == 0) ++sums.calls;
      if (!wrong.empty()) {
        Complain(sums, "rank " + std::to_string(rank) + ", " + plans[i].name + ", call " + std::to_string(call) + ": " +
                           wrong);
      }
    }
  }
}

// Exchanges messages with neighbors at increasing distance, of a length that both sides know, while the collectives
// run.
void Talk(const Settings& settings, Group& world, Sums& sums) {
  const std::uint64_t rounds = settings.calls / 10;
  const int size = world.size();
  for (std::uint64_t round = 0; round < rounds && size > 1 && sums.wrong.load() == 0; ++round) {
    const int step = 1 + static_cast<int>(round % static_cast<std::uint64_t>(size - 1));
    const int to = (world.rank() + step) % size;
    const int from = (world.rank() + size - step) % size;
    const auto contents = [&](int sender) {
      Draws draws(Mix(settings.seed + round) + static_cast<std::uint64_t>(sender));
      std::vector<std::uint8_t> data(draws.Below(std::uint64_t{1} << draws.Below(19)));
      for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(draws.Next());
      return data;
    };
    const std::vector<std::uint8_t> given = contents(world.rank());
    const std::vector<std::uint8_t> expected = contents(from);
    std::vector<std::uint8_t> got(expected.size());
    const auto receive = world.messages().PostReceive(got.data(), got.size(), round % 3 == 0 ? -1 : from, round);
    const auto send = world.messages().PostSend(given.data(), given.size(), to, round);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(settings.seconds);
    for (const auto& operation : {receive, send}) {
      if (Status status = world.messages().Wait(*operation, deadline); !status.ok()) Complain(sums, status.text());
    }
    if (got != expected || receive->peer() != from) {
      Complain(sums, "rank " + std::to_string(world.rank()) + ": message " + std::to_string(round) + " was wrong");
    }
    ++sums.messages;
  }
}

void Live(const Settings& settings, const std::vector<GroupPlan>& plans, int rank, Sums& sums) {
  std::vector<std::unique_ptr<Group>> groups(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto place = std::find(plans[i].members.begin(), plans[i].members.end(), rank);
    if (place == plans[i].members.end()) continue;
    Group::CreateResult made =
        Group::Create(OptionsOf(plans[i].options, static_cast<int>(place - plans[i].members.begin()),
                                static_cast<int>(plans[i].members.size())));
    groups[i] = std::move(made.group);
    if (groups[i] != nullptr) continue;
    Complain(sums, "rank " + std::to_string(rank) + ", " + plans[i].name + ": " + made.status.text());
    return;
  }
  std::thread world([&] { Drive(settings, plans, groups, true, rank, sums); });
  std::thread talker([&] { Talk(settings, *groups[0], sums); });
  Drive(settings, plans, groups, false, rank, sums);
  world.join();
  talker.join();
}

bool ReadArguments(int count, char** arguments, Settings& settings) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--threads") {
      settings.threads = true;
      continue;
    }
    const std::uint64_t value = i + 1 < count ? std::strtoull(arguments[++i], nullptr, 10) : 0;
    if (name == "--calls" && value > 0) {
      settings.calls = value;
    } else if (name == "--ranks" && value >= 2 && value <= 64) {
      settings.ranks = static_cast<int>(value);
    } else if (name == "--seed") {
      settings.seed = value;
    } else if (name == "--seconds" && value > 0 && value < 1000000) {
      settings.seconds = static_cast<int>(value);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  if (!ReadArguments(count, arguments, settings)) {
    std::fputs("Usage: collectives_soak [--calls N] [--ranks 2…64] [--seed N] [--threads] [--seconds N]\n", stderr);
    return 2;
  }
  settings.run = "soak " + std::to_string(getpid()) + " " + std::to_string(settings.seed);
  const std::vector<GroupPlan> plans = PlanGroups(settings);
  void* memory = mmap(nullptr, sizeof(Sums), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Sums& sums = *new (memory) Sums;
  const auto begin = std::chrono::steady_clock::now();
  int lost = 0;
  if (settings.threads) {
    alarm(static_cast<unsigned>(settings.seconds));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < settings.ranks; ++rank) {
      ranks.emplace_back([&, rank] { Live(settings, plans, rank, sums); });
    }
    for (std::thread& rank : ranks) rank.join();
  } else {
    std::vector<pid_t> children;
    for (int rank = 0; rank < settings.ranks; ++rank) {
      children.push_back(fork());
      if (children.back() == 0) {
        alarm(static_cast<unsigned>(settings.seconds));  // kills this rank; the others then detect its death
        Live(settings, plans, rank, sums);
        std::exit(0);
      }
    }
    for (const pid_t child : children) {
      int ended = 0;
      if (waitpid(child, &ended, 0) != child || ended != 0) ++lost;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (sums.wrong != 0)
    std::fprintf(stderr, "collectives_soak: %d wrong, the first: %s\n", sums.wrong.load(), sums.first_wrong);
  if (lost != 0) std::fprintf(stderr, "collectives_soak: %d of %d ranks did not end well\n", lost, settings.ranks);
  const bool all = sums.calls == settings.calls;
  std::printf("%llu calls, %llu messages, %llu bytes on %d %s in %.1f s, seed %llu\n",
              static_cast<unsigned long long>(sums.calls), static_cast<unsigned long long>(sums.messages),
              static_cast<unsigned long long>(sums.bytes), settings.ranks, settings.threads ? "threads" : "processes",
              seconds, static_cast<unsigned long long>(settings.seed));
  return sums.wrong == 0 && lost == 0 && all ? 0 : 1;
}
