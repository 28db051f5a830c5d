#include "bench/collectives_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <set>

#include "base/event_loop.h"
#include "base/files/system_root.h"
#include "base/text.h"
#include "bench/host_memory.h"
#include "bench/rank_commands.h"
#include "bench/rank_protocol.h"
#include "bench/rank_set.h"
#include "bench/temporary_run_folder.h"

namespace fulldeck::bench {
namespace {

constexpr int kMaxRanks = 256;
constexpr int kMinCalls = 3;
constexpr int kMaxCalls = 2000;
// Memory of a rank in addition to its buffers.
constexpr std::uint64_t kBytesOfARank = std::uint64_t{32} << 20;
constexpr std::uint64_t kBytesOfAPythonRank = std::uint64_t{300} << 20;

// Reported separately, with priority over a failure.
constexpr char kWrongValue[] = "a wrong value";

bool IsOurs(Contender contender) {
  return contender == Contender::kFulldeck || contender == Contender::kFulldeckShared || contender == Contender::kTorch;
}

// fulldeck with private and with shared buffers uses the same processes.
Contender RanksOf(Contender contender) {
  return contender == Contender::kFulldeckShared ? Contender::kFulldeck : contender;
}

base::Duration Seconds(double seconds) {
  return std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(seconds));
}

std::string NameOfCell(const Operation& operation, std::uint64_t bytes, int ranks) {
  return operation.has_size ? fmt::format("{} of {} with {} ranks", operation.name, base::FormatByteSize(bytes), ranks)
                            : fmt::format("{} with {} ranks", operation.name, ranks);
}

class Bench {
 public:
  Bench(const BenchPlan& plan, const base::Environment& environment, std::string folder,
        const std::function<void(const std::string&)>& log_line)
      : plan_(plan), log_line_(log_line) {
    launcher_config_.environment = environment;
    launcher_config_.folder = std::move(folder);
    launcher_config_.executable_path = base::ExecutablePath();
    launcher_config_.python = plan.python;
    launcher_config_.timeout_seconds = plan.timeout_seconds;
  }

  base::Result<BenchFigures> Run() {
    if (auto heard = loop_.OnSignals({SIGINT, SIGTERM, SIGHUP}, [this](int) { interrupted_ = true; }); !heard) {
      return heard.error();
    }
    const std::vector<int> cpus = UsableCpus();
    figures_.cpus = static_cast<int>(cpus.size());
    if (const auto load = base::SystemRoot().ReadLine("/proc/loadavg")) {
      figures_.load_before = base::Printable(load->substr(0, load->find(' ')));
    }
    const bool bound_wanted =
        std::find(plan_.operations.begin(), plan_.operations.end(), FindOperation("all_reduce")) !=
            plan_.operations.end() &&
        std::any_of(plan_.sizes.begin(), plan_.sizes.end(), [](std::uint64_t size) { return size >= kMinBoundBytes; });
    if (bound_wanted) figures_.memory_bytes_per_second = MeasureMemorySpeed(cpus);
    for (const int ranks : plan_.ranks) {
      if (!interrupted_) MeasureWith(ranks);
    }
    if (bound_wanted && !interrupted_) {
      figures_.memory_bytes_per_second = std::max(figures_.memory_bytes_per_second, MeasureMemorySpeed(cpus));
    }
    figures_.interrupted = interrupted_;
    return std::move(figures_);
  }

 private:
  void MeasureWith(int ranks) {
    sets_.clear();
    why_not_.clear();
    for (const Contender contender : plan_.contenders) StartRanks(contender, ranks);
    for (const Operation* operation : plan_.operations) {
      const std::vector<std::uint64_t> no_size = {0};
      for (const std::uint64_t bytes : operation->has_size ? plan_.sizes : no_size) {
        if (!interrupted_) MeasureCell(*operation, bytes, ranks);
        if (!interrupted_ && plan_.timeline && operation->kind == OperationKind::kAllReduce)
          TakeTimelines(bytes, ranks);
      }
    }
    sets_.clear();
  }

  base::Result<RankCommand> CommandFor(Contender contender, int ranks) const {
    if (contender == Contender::kGloo) return TorchCommand(launcher_config_, ranks, "gloo");
    if (contender == Contender::kTorch) return TorchCommand(launcher_config_, ranks, "fulldeck");
    if (contender == Contender::kOpenMpi) return OpenMpiCommand(launcher_config_, ranks);
    return FulldeckCommand(launcher_config_, ranks);
  }

  void StartRanks(Contender contender, int ranks) {
    if (interrupted_ || RanksOf(contender) != contender) return;
    Presence presence{contender, ranks, "", std::nullopt};
    auto command = CommandFor(contender, ranks);
    if (!command) {
      presence.absent = command.error().message;
    } else {
      auto started = RankSet::Start(loop_, interrupted_, std::move(*command), launcher_config_.folder,
                                    Seconds(plan_.timeout_seconds));
      if (started.set) {
        presence.about = started.set->about();
        sets_[contender] = std::move(started.set);
      } else {
        presence.absent = started.absent ? *started.absent : started.failed.value_or("");
        // A peer that is not installed or does not start is not a failure.
        if (contender == Contender::kFulldeck && !interrupted_) {
          figures_.failures.push_back(fmt::format("fulldeck with {} ranks: {}", ranks, *presence.absent));
        }
      }
    }
    if (presence.absent && !interrupted_) {
      why_not_[contender] = *presence.absent;
      if (contender != Contender::kFulldeck)
        log_line_(fmt::format("{} is left out with {} ranks: {}", NameOf(contender), ranks, *presence.absent));
    }
    figures_.present.push_back(std::move(presence));
  }

  void MeasureCell(const Operation& operation, std::uint64_t bytes, int ranks) {
    CellFigures cell{ranks, &operation, bytes, {}};
    std::map<Contender, std::vector<std::uint64_t>> times;
    std::map<Contender, std::uint64_t> checked;
    std::map<Contender, std::string> why_not;
    for (int round = 0; round < plan_.rounds && !interrupted_; ++round) {
      for (const Contender contender : plan_.contenders) {
        if (contender == Contender::kFulldeckShared && operation.kind != OperationKind::kAllReduce) continue;
        if (why_not.contains(contender)) continue;
        const Contender set = RanksOf(contender);
        if (!sets_.contains(set)) {
          why_not[contender] = why_not_[set];
          continue;
        }
        auto measured = Request(contender, operation, bytes, ranks);
        if (!measured) {
          why_not[contender] = measured.error().message;
          continue;
        }
        times[contender].insert(times[contender].end(), measured->slowest_ns.begin(), measured->slowest_ns.end());
        checked[contender] += measured->checked;
      }
    }
    for (const Contender contender : plan_.contenders) {
      if (times.contains(contender) && !why_not.contains(contender)) {
        Figures figures = FiguresOf(times[contender]);
        figures.checked = checked[contender];
        cell.outcomes.push_back({contender, figures, ""});
      } else if (why_not.contains(contender)) {
        cell.outcomes.push_back({contender, std::nullopt, why_not[contender]});
      }
    }
    figures_.cells.push_back(std::move(cell));
  }

  struct Answers {
    std::vector<std::uint64_t> slowest_ns;
    std::uint64_t checked = 0;
  };

  // The error says why there are no times. Failures and wrong values have been recorded then.
  base::Result<Answers> Request(Contender contender, const Operation& operation, std::uint64_t bytes, int ranks) {
    Cell cell;
    cell.operation = &operation;
    cell.element = plan_.element;
    cell.bytes = bytes;
    cell.shared = contender == Contender::kFulldeckShared;
    cell.on_cuda = plan_.on_cuda;
    cell.seconds = plan_.seconds / plan_.rounds;
    cell.min_calls = kMinCalls;
    cell.max_calls = kMaxCalls;
    cell.spoil = plan_.spoiled == contender;
    const std::string name = NameOf(contender) + (": " + NameOfCell(operation, bytes, ranks));
    RankSet& set = *sets_[RanksOf(contender)];
    const auto is_final = [](const std::string& line) {
      const auto measurement = ReadMeasurement(line);
      return !measurement || measurement->failed || measurement->wrong;
    };
    const auto answers = set.Request(LineOf(Order::Kind::kMeasure, cell), Seconds(plan_.timeout_seconds), is_final);
    if (!answers) return GiveUp(contender, name, answers.error().message);

    Answers found;
    std::vector<std::vector<std::uint64_t>> times;
    std::optional<std::string> failed;
    for (std::size_t rank = 0; rank < answers->size(); ++rank) {
      if (!(*answers)[rank]) continue;
      const auto measurement = ReadMeasurement(*(*answers)[rank]);
      if (!measurement) return GiveUp(contender, name, measurement.error().message);
      if (measurement->wrong) {
        figures_.wrong_values.push_back(name + ": " + *measurement->wrong);
        return GiveUp(contender, name, kWrongValue);
      }
      if (measurement->cannot) return base::Error{*measurement->cannot};
      if (measurement->failed && !failed) failed = fmt::format("rank {}: {}", rank, *measurement->failed);
      times.push_back(measurement->times_ns);
      found.checked += measurement->checked;
    }
    if (failed) return GiveUp(contender, name, *failed);
    const bool alike =
        std::all_of(times.begin(), times.end(), [&](const auto& one) { return one.size() == times.front().size(); });
    if (times.size() != answers->size() || !alike || times.front().empty()) {
      return GiveUp(contender, name, "its ranks did not make the same number of calls");
    }
    found.slowest_ns = SlowestOf(times);
    return found;
  }

  // The state of these ranks is unknown: ends them and excludes the contender from later cells.
  base::Error GiveUp(Contender contender, const std::string& name, const std::string& why) {
    if (!interrupted_ && why != kWrongValue) {
      if (IsOurs(contender)) {
        figures_.failures.push_back(name + ": " + why);
      } else {
        log_line_(name + ": " + why + "; it is left out from here on");
      }
    }
    why_not_[RanksOf(contender)] = kFailedBefore;
    sets_.erase(RanksOf(contender));
    return base::Error{why};
  }

  void TakeTimelines(std::uint64_t bytes, int ranks) {
    for (const Contender contender : {Contender::kFulldeck, Contender::kFulldeckShared}) {
      const bool wanted =
          std::find(plan_.contenders.begin(), plan_.contenders.end(), contender) != plan_.contenders.end();
      if (!wanted || interrupted_ || !sets_.contains(Contender::kFulldeck)) continue;
      Cell cell;
      cell.operation = FindOperation("all_reduce");
      cell.element = plan_.element;
      cell.bytes = bytes;
      cell.shared = contender == Contender::kFulldeckShared;
      const std::string name = fmt::format("{}: timeline of {}", NameOf(contender), base::FormatByteSize(bytes));
      const auto is_final = [](const std::string& line) {
        const auto timeline = ReadTimeline(line);
        return !timeline || timeline->failed;
      };
      const auto answers = sets_[Contender::kFulldeck]->Request(LineOf(Order::Kind::kTimeline, cell),
                                                                Seconds(plan_.timeout_seconds), is_final);
      CellTimeline timeline{ranks, bytes, cell.shared, {}};
      std::optional<std::string> failed;
      if (!answers) failed = answers.error().message;
      for (std::size_t rank = 0; answers && rank < answers->size() && !failed; ++rank) {
        if (!(*answers)[rank]) continue;
        auto one = ReadTimeline(*(*answers)[rank]);
        if (!one || one->failed) {
          failed = one ? *one->failed : one.error().message;
        } else {
          timeline.by_rank.push_back(std::move(*one));
        }
      }
      if (failed) {
        static_cast<void>(GiveUp(contender, name, *failed));
      } else {
        figures_.timelines.push_back(std::move(timeline));
      }
    }
  }

  const BenchPlan& plan_;
  const std::function<void(const std::string&)>& log_line_;
  RankLauncherConfig launcher_config_;
  base::EventLoop loop_;
  bool interrupted_ = false;
  std::map<Contender, std::unique_ptr<RankSet>> sets_;
  std::map<Contender, std::string> why_not_;
  BenchFigures figures_;
};

}  // namespace

MemoryNeed NeedOf(const BenchPlan& plan) {
  MemoryNeed need;
  const auto uses = [&](Contender contender) {
    return std::find(plan.contenders.begin(), plan.contenders.end(), contender) != plan.contenders.end();
  };
  for (const int ranks : plan.ranks) {
    std::uint64_t waiting = 0;
    for (const Contender contender : plan.contenders) {
      const bool python = contender == Contender::kGloo || contender == Contender::kTorch;
      if (RanksOf(contender) == contender) waiting += (python ? kBytesOfAPythonRank : kBytesOfARank) * ranks;
    }
    for (const Operation* operation : plan.operations) {
      for (const std::uint64_t bytes : plan.sizes) {
        const std::uint64_t buffers = BytesOfAllBuffers(*operation, *plan.element, bytes, ranks);
        // Gloo reduces in a copy of its input, and other libraries may do so as well.
        const std::uint64_t copies = operation->reduces && uses(Contender::kGloo) ? buffers : 0;
        if (waiting + buffers + copies <= need.bytes) continue;
        need = {waiting + buffers + copies, NameOfCell(*operation, bytes, ranks)};
      }
    }
  }
  return need;
}

base::Result<void> CheckPlan(const BenchPlan& plan, std::optional<std::uint64_t> available_memory) {
  for (const int ranks : plan.ranks) {
    if (ranks < 1 || ranks > kMaxRanks) {
      return base::Error{fmt::format("--nproc {}: a group has 1 to {} ranks", ranks, kMaxRanks)};
    }
  }
  for (const std::uint64_t bytes : plan.sizes) {
    if (bytes == 0 || bytes % plan.element->bytes != 0) {
      return base::Error{fmt::format("--sizes: {} bytes are no whole number of {} elements of {} bytes each", bytes,
                                     plan.element->name, plan.element->bytes)};
    }
  }
  const MemoryNeed need = NeedOf(plan);
  if (available_memory && need.bytes > *available_memory) {
    return base::Error{
        fmt::format("{} needs about {} of memory for all ranks together, and {} are free; take smaller "
                    "--sizes, fewer --nproc, or --peers none",
                    need.of, base::FormatByteSize(need.bytes), base::FormatByteSize(*available_memory))};
  }
  return {};
}

base::Result<BenchFigures> RunCollectivesBench(const BenchPlan& plan, const base::Environment& environment,
                                               const std::function<void(const std::string&)>& log_line) {
  auto folder = TemporaryRunFolder::Make(environment);
  if (!folder) return folder.error();
  return Bench(plan, environment, folder->path(), log_line).Run();
}

}  // namespace fulldeck::bench
