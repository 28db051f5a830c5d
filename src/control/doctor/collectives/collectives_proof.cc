#include "doctor/collectives/collectives_proof.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "base/event_loop.h"
#include "base/files/system_root.h"
#include "base/python_start.h"
#include "base/text.h"
#include "bench/collectives_bench.h"
#include "bench/host_memory.h"
#include "bench/rank_commands.h"
#include "bench/rank_set.h"
#include "bench/temporary_run_folder.h"
#include "doctor/python_scripts.h"

namespace fulldeck::doctor {
namespace {

constexpr int kMaxRestarts = 2;
constexpr std::uint64_t kLargestPair = std::uint64_t{4} << 20;
constexpr std::uint64_t kLatencyBytes = 8;
constexpr int kPairCalls = 6;
// Smaller messages are dominated by latency; their bandwidth is not judged.
constexpr std::uint64_t kMinJudgedPair = std::uint64_t{128} << 10;
constexpr int kRetries = 5;                              // if a measurement seems slow
constexpr std::chrono::milliseconds kRetryInterval(30);  // multiplied by the attempt
constexpr double kSlowFactor = 10;      // relative to memory bandwidth, at sizes that exceed the caches
constexpr double kBusyLoad = 2;         // per CPU
constexpr int kTorchTimeoutFactor = 6;  // a Python with torch takes longer to start than a call to end

double Median(std::vector<std::uint64_t> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]) * 1e-9;
}

char StateOf(std::uint64_t pid) {
  const auto line = pid == 0 ? std::nullopt : base::SystemRoot().ReadLine(fmt::format("/proc/{}/stat", pid));
  const std::size_t end = line ? line->rfind(')') : std::string::npos;
  return end != std::string::npos && end + 2 < line->size() ? (*line)[end + 2] : '?';
}

std::string DescribeExit(std::optional<int> status) {
  if (!status) return "ended";
  if (WIFSIGNALED(*status)) return fmt::format("was ended by signal {}", WTERMSIG(*status));
  return fmt::format("ended with code {}", WEXITSTATUS(*status));
}

class Proof {
 public:
  Proof(const ProofPlan& plan, const base::Environment& environment, std::string folder,
        const std::function<void(const std::string&)>& log_line)
      : plan_(plan), log_line_(log_line) {
    launcher_config_.environment = environment;
    launcher_config_.folder = std::move(folder);
    launcher_config_.executable_path = base::ExecutablePath();
    launcher_config_.python = plan.python;
    launcher_config_.timeout_seconds = plan.timeout_seconds;
    progress_path_ = launcher_config_.folder + "/progress";
  }

  base::Result<ProofReport> Run() {
    if (auto heard = loop_.OnSignals({SIGINT, SIGTERM, SIGHUP}, [this](int) { interrupted_ = true; }); !heard)
      return heard.error();
    const std::vector<int> cpus = bench::UsableCpus();
    report_.backend = plan_.backend;
    report_.ranks = plan_.ranks;
    report_.cpus = static_cast<int>(cpus.size());
    const bool bound_wanted = std::any_of(plan_.sizes.begin(), plan_.sizes.end(),
                                          [](std::uint64_t size) { return size >= bench::kMinBoundBytes; });
    if (const auto load = base::SystemRoot().ReadLine("/proc/loadavg")) {
      report_.load = base::ParseDecimal(load->substr(0, load->find(' '))).value_or(0);
    }
    report_.busy = report_.load > kBusyLoad * static_cast<double>(cpus.size());
    // One CPU per rank: more CPUs cannot help the ranks.
    const std::vector<int> used(cpus.begin(), cpus.begin() + std::min<std::ptrdiff_t>(plan_.ranks, std::ssize(cpus)));
    if (bound_wanted) report_.memory_bytes_per_second = bench::MeasureMemorySpeed(used);
    if (auto started = Start(); !started) return started.error();

    ProofShape shape{plan_.ranks, plan_.sizes, IsNative()};
    const std::vector<Step> steps = StepsOf(shape);
    for (const Step& step : steps) {
      if (interrupted_) break;
      // After a hang or a death, other steps of that collective would only repeat it.
      if (given_up_.contains(step.operation->name)) continue;
      if (!set_ && !Again()) break;
      OneStep(step);
    }
    if (plan_.ranks > 1 && !interrupted_) Pairs(static_cast<int>(steps.size()));
    JudgeSpeed();
    RecordSkipped(steps);
    report_.interrupted = interrupted_;
    return std::move(report_);
  }

 private:
  bool IsNative() const { return plan_.backend == "fulldeck"; }
  base::Duration StepTimeout() const {
    return std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(plan_.timeout_seconds));
  }

  base::Result<bench::RankCommand> Recipe() const {
    // The name determines the socket path; a new group must not connect to a failed one.
    bench::RankCommand command{fmt::format("{}-{}", IsNative() ? "fulldeck" : "torch", restarts_), plan_.ranks, {}};
    const std::string socket = bench::RankSet::SocketPath(launcher_config_.folder, command);
    // The doctor detects a hang itself; the library's own timeout must be longer.
    const std::string timeout = fmt::format("{}", plan_.timeout_seconds * 3);
    std::string python;
    std::string script;
    base::Environment environment = base::WithoutWorkingDirectory(launcher_config_.environment);
    if (!IsNative()) {
      auto found = bench::FindPython(launcher_config_);
      if (!found) return found.error();
      python = *found;
      auto written = bench::WriteScript(launcher_config_, "collectives_rank.py", kCollectivesRankScript);
      if (!written) return written.error();
      script = *written;
      for (const auto& [name, value] : {std::pair("OMP_NUM_THREADS", "1"), std::pair("GLOO_SOCKET_IFNAME", "lo")}) {
        if (!environment.Get(name)) environment.Set(name, value);
      }
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      base::SpawnOptions options;
      const std::string number = std::to_string(rank);
      const std::string size = std::to_string(plan_.ranks);
      if (IsNative()) {
        options.arguments = {launcher_config_.executable_path,
                             "doctor-rank",
                             socket,
                             progress_path_,
                             "--rank",
                             number,
                             "--size",
                             size,
                             "--timeout",
                             timeout};
        if (!plan_.fault.empty()) options.arguments.insert(options.arguments.end(), {"--inject", plan_.fault});
      } else {
        const std::string store = fmt::format("{}/store-{}", launcher_config_.folder, restarts_);
        const std::string device = plan_.devices.empty() ? "cpu" : plan_.devices[static_cast<std::size_t>(rank)];
        options.arguments = {python,        script, socket,  progress_path_, number,       size,
                             plan_.backend, store,  timeout, device,         plan_.module, plan_.fault};
      }
      options.environment = bench::VariablesOfRanks(environment);
      command.processes.push_back(std::move(options));
    }
    return command;
  }

  base::Result<void> Start() {
    auto command = Recipe();
    if (!command) return command.error();
    if (!IsNative()) log_line_(fmt::format("starting {} ranks of {} in {}", plan_.ranks, plan_.backend, plan_.python));
    // Records of the previous ranks do not apply to these.
    unlink(progress_path_.c_str());
    auto started = bench::RankSet::Start(loop_, interrupted_, std::move(*command), launcher_config_.folder,
                                         StepTimeout() * (IsNative() ? 1 : kTorchTimeoutFactor));
    if (!started.set) {
      return base::Error{fmt::format("{} with {} ranks cannot be tried: {}", plan_.backend, plan_.ranks,
                                     started.absent ? *started.absent : started.failed.value_or(""))};
    }
    set_ = std::move(started.set);
    report_.about = set_->about();
    return {};
  }

  bool Again() {
    if (restarts_ >= kMaxRestarts) return false;
    ++restarts_;
    return static_cast<bool>(Start());
  }

  OperationFigures& FiguresOf(const Step& step) {
    for (OperationFigures& figures : report_.operations) {
      if (figures.name == step.operation->name) return figures;
    }
    report_.operations.push_back({step.operation->name, 0, 0, {}, std::nullopt});
    return report_.operations.back();
  }

  // The answers of all ranks, correct or not; nullopt if some are missing, which is then recorded.
  std::optional<std::vector<StepAnswer>> Request(const Step& step) {
    const auto never = [](const std::string&) { return false; };
    const auto lines = set_->Request(LineOf(step), StepTimeout(), never);
    std::vector<StepAnswer> answers;
    std::optional<std::string> failed;
    for (std::size_t rank = 0; lines && rank < lines->size(); ++rank) {
      auto answer = ReadStepAnswer(**std::next(lines->begin(), static_cast<std::ptrdiff_t>(rank)));
      if (!answer) failed = fmt::format("rank {}: {}", rank, answer.error().message);
      if (answer && answer->failed && !failed) failed = fmt::format("rank {}: {}", rank, *answer->failed);
      if (answer) answers.push_back(std::move(*answer));
    }
    if (lines && !failed) return answers;
    if (!interrupted_) RecordFailure(step, lines ? *failed : lines.error().message);
    given_up_.insert(step.operation->name);
    set_.reset();
    return std::nullopt;
  }

  void RecordFailure(const Step& step, const std::string& text) {
    Finding finding;
    finding.verdict = Verdict::kFail;
    const std::string what = Describe(step);
    finding.figures = {{"operation", step.operation->name}, {"step", what}};
    if (!set_->ended().empty()) {
      const auto& ended = set_->ended().front();
      finding.row = "A5";
      finding.evidence = {
          fmt::format("{}: rank {} {} in it. {}", what, ended.process, DescribeExit(ended.status), text),
          fmt::format("{}：rank {} 在其中退出（{}）。{}", what, ended.process, DescribeExit(ended.status), text)};
      finding.fix = {"read what that rank said last; fulldeck explain knows most of it",
                     "先看该 rank 最后的输出；fulldeck explain 认识其中大部分"};
      finding.figures.insert(finding.figures.end(), {{"kind", "dead"}, {"ranks", std::to_string(ended.process)}});
    } else {
      std::vector<int> silent;
      for (std::size_t rank = 0; rank < set_->answers().size(); ++rank) {
        if (!set_->answers()[rank]) silent.push_back(static_cast<int>(rank));
      }
      if (silent.empty()) {
        finding.evidence = {fmt::format("{} failed: {}", what, text), fmt::format("{} 失败：{}", what, text)};
        finding.fix = {"the text is the library's own; try --backend gloo beside it",
                       "以上为通信库自己的报错；可用 --backend gloo 对照"};
        finding.figures.emplace_back("kind", "failed");
      } else {
        RecordHang(step, silent, finding);
      }
    }
    report_.findings.push_back(std::move(finding));
  }

  void RecordHang(const Step& step, const std::vector<int>& silent, Finding& finding) const {
    const std::string what = Describe(step);
    const auto progress = ReadProgress(progress_path_, plan_.ranks);
    std::string states;
    for (const RankProgress& one : progress) states += StateOf(one.pid);
    const Absence absent = FindAbsent(silent, progress, step.number, states);
    std::string who;
    for (const int rank : absent.ranks) {
      const char state = states[static_cast<std::size_t>(rank)];
      who += fmt::format("{}{}{}", who.empty() ? "" : ", ", rank,
                         state == 'T' || state == 't' ? " (stopped)"
                         : state == 'D'               ? " (in the kernel)"
                                                      : "");
    }
    finding.row = "I3";
    finding.figures.insert(finding.figures.end(), {{"kind", "hang"}, {"ranks", who}});
    if (absent.ranks.empty()) {
      finding.evidence = {
          fmt::format("{}: hangs; all {} ranks are inside the call after {} s", what, silent.size(),
                      plan_.timeout_seconds),
          fmt::format("{}：挂起；{} 秒后 {} 个 rank 都还在调用之中", what, plan_.timeout_seconds, silent.size())};
      finding.fix = {
          "the library waits for itself: check the interface and P2P it takes (fulldeck doctor --only network), or try "
          "--backend gloo beside it",
          "通信库自身在互相等待：检查它使用的网卡与 P2P（fulldeck doctor --only network），或用 --backend gloo 对照"};
      return;
    }
    finding.evidence = {
        fmt::format("{}: hangs; rank {} {} after {} s, the others wait", what, who,
                    absent.inside ? "does not go on inside the call" : "did not come", plan_.timeout_seconds),
        fmt::format("{}：挂起；{} 秒后 rank {} {}，其余 rank 在等待", what, plan_.timeout_seconds, who,
                    absent.inside ? "停在调用之中" : "没有到达")};
    finding.fix = {
        fmt::format("look at the card and the process of rank {}; fulldeck doctor --deep tries every card alone",
                    absent.ranks.front()),
        fmt::format("检查 rank {} 的卡和进程；fulldeck doctor --deep 会单独测试每张卡", absent.ranks.front())};
  }

  void OneStep(const Step& step) {
    const auto answers = Request(step);
    if (!answers) return;
    OperationFigures& figures = FiguresOf(step);
    std::vector<std::pair<int, StepAnswer::Wrong>> wrong;
    std::vector<std::vector<std::uint64_t>> times;
    for (std::size_t rank = 0; rank < answers->size(); ++rank) {
      const StepAnswer& answer = (*answers)[rank];
      if (answer.cannot) {
        figures.cannot = fmt::format("{}: {}", Describe(step), *answer.cannot);
        return;
      }
      figures.checked += answer.checked;
      report_.checked += answer.checked;
      if (answer.wrong) wrong.emplace_back(static_cast<int>(rank), *answer.wrong);
      times.push_back(answer.times_ns);
    }
    if (!wrong.empty()) {
      // Report one per collective.
      if (reported_wrong_.insert(step.operation->name).second)
        report_.findings.push_back(WrongValueFinding(step, wrong, plan_.ranks));
      return;
    }
    ++figures.steps;
    if (!step.sized) return;
    SizeFigure figure = FigureOf(step, times);
    // Other load can make a call slower, never faster.
    for (int attempt = 0; attempt < kRetries && IsSlow(figure) && !interrupted_; ++attempt) {
      const auto more = Request(step);
      if (!more) return;
      std::vector<std::vector<std::uint64_t>> again;
      for (const StepAnswer& answer : *more) again.push_back(answer.times_ns);
      figure.least = std::min(figure.least, FigureOf(step, again).least);
    }
    if (figure.seconds > 0) figures.sizes.push_back(figure);
  }

  SizeFigure FigureOf(const Step& step, const std::vector<std::vector<std::uint64_t>>& times) const {
    const bool alike = std::all_of(times.begin(), times.end(), [&](const auto& one) {
      return one.size() == times.front().size() && one.size() > 1;
    });
    SizeFigure figure;
    if (!alike || times.empty()) return figure;
    std::vector<std::uint64_t> slowest = bench::SlowestOf(times);
    slowest.erase(slowest.begin());  // touches new memory
    const std::uint64_t chunks = step.operation->in_chunks ? static_cast<std::uint64_t>(plan_.ranks) : 1;
    figure.bytes = step.count * chunks * step.element->bytes;
    figure.seconds = Median(slowest);
    figure.least = static_cast<double>(*std::min_element(slowest.begin(), slowest.end())) * 1e-9;
    if (IsNative() && step.operation->has_size && figure.bytes >= bench::kMinBoundBytes &&
        report_.memory_bytes_per_second > 0) {
      figure.judged = !step.operation->has_root;
      figure.possible = BytesMoved(*step.operation, plan_.ranks, figure.bytes) / report_.memory_bytes_per_second;
    }
    return figure;
  }
  static bool IsSlow(const SizeFigure& figure) {
    return figure.judged && figure.least > *figure.possible * kSlowFactor;
  }

  // nullopt: it failed, which is recorded.
  std::optional<double> PairSeconds(int number, int from, int to, std::uint64_t bytes) {
    const Step step = PairStep(number, from, to, bytes, kPairCalls);
    const auto answers = Request(step);
    if (!answers) return std::nullopt;
    OperationFigures& figures = FiguresOf(step);
    std::vector<std::pair<int, StepAnswer::Wrong>> wrong;
    for (const int rank : {from, to}) {
      const StepAnswer& answer = (*answers)[static_cast<std::size_t>(rank)];
      if (answer.cannot) figures.cannot = fmt::format("{}: {}", Describe(step), *answer.cannot);
      figures.checked += answer.checked;
      report_.checked += answer.checked;
      if (answer.wrong) wrong.emplace_back(rank, *answer.wrong);
    }
    if (figures.cannot) return std::nullopt;
    if (!wrong.empty()) {
      if (reported_pairs_.emplace(from, to).second)
        report_.findings.push_back(WrongValueFinding(step, wrong, plan_.ranks));
    } else {
      ++figures.steps;
    }
    const auto& times = (*answers)[static_cast<std::size_t>(from)].times_ns;
    if (times.empty()) return std::nullopt;
    // The minimum: other load can make a pair slower, never faster.
    return static_cast<double>(*std::min_element(times.begin(), times.end())) * 1e-9 / 2;
  }

  void Pairs(int number) {
    report_.pair_bytes = kLargestPair;
    if (!plan_.sizes.empty())
      report_.pair_bytes = std::min(kLargestPair, *std::max_element(plan_.sizes.begin(), plan_.sizes.end()));
    for (int from = 0; from < plan_.ranks; ++from) {
      for (int to = from + 1; to < plan_.ranks; ++to) {
        if (interrupted_ || (!set_ && !Again())) return;
        const auto latency = PairSeconds(++number, from, to, kLatencyBytes);
        const auto seconds = latency ? PairSeconds(++number, from, to, report_.pair_bytes) : std::nullopt;
        if (seconds && *seconds > 0) {
          report_.pairs.push_back({from, to, *latency, static_cast<double>(report_.pair_bytes) / *seconds});
        } else if (set_) {
          return;  // the library does not support the call
        }
      }
    }
    if (report_.pair_bytes < kMinJudgedPair) return;
    for (int attempt = 0; attempt < kRetries; ++attempt) {
      const std::vector<PairFigures> seems_slow = FindSlowPairs(report_.pairs).slow;
      // Other load comes in time slices, which would affect all immediate retries.
      if (!seems_slow.empty()) std::this_thread::sleep_for(kRetryInterval * attempt);
      for (const PairFigures& slow : seems_slow) {
        if (interrupted_ || !set_) return;
        const auto seconds = PairSeconds(++number, slow.from, slow.to, report_.pair_bytes);
        for (PairFigures& pair : report_.pairs) {
          if (seconds && *seconds > 0 && pair.from == slow.from && pair.to == slow.to) {
            pair.bytes_per_second = std::max(pair.bytes_per_second, static_cast<double>(report_.pair_bytes) / *seconds);
          }
        }
      }
    }
    const SlowPairs slow = FindSlowPairs(report_.pairs);
    if (slow.slow.empty()) return;
    const auto speed = [](double bytes_per_second) { return fmt::format("{:.2f} GB/s", bytes_per_second * 1e-9); };
    Finding finding;
    finding.verdict = report_.busy ? Verdict::kCannotTell : Verdict::kWarn;
    const PairFigures& worst = slow.slow.front();
    std::string names;
    for (const PairFigures& pair : slow.slow)
      names += fmt::format("{}{}-{}", names.empty() ? "" : ", ", pair.from, pair.to);
    const std::string who = slow.rank ? fmt::format("all slow pairs have rank {} in them", *slow.rank)
                                      : fmt::format("{} of {} pairs", slow.slow.size(), report_.pairs.size());
    const std::string who_zh = slow.rank ? fmt::format("慢的都涉及 rank {}", *slow.rank)
                                         : fmt::format("{} 对中有 {} 对", report_.pairs.size(), slow.slow.size());
    finding.evidence = {fmt::format("the pair {}–{} is slow: {}, and the median of all pairs is {} ({})", worst.from,
                                    worst.to, speed(worst.bytes_per_second), speed(slow.median_bytes_per_second), who),
                        fmt::format("rank {} 与 {} 之间慢：{}，所有两两带宽的中位数为 {}（{}）", worst.from, worst.to,
                                    speed(worst.bytes_per_second), speed(slow.median_bytes_per_second), who_zh)};
    finding.fix = {
        "look at how these two are connected (fulldeck devices: NUMA node, link) and what else runs on their cores",
        "检查这两者的连接方式（fulldeck devices：NUMA 节点、链路）以及它们的核上还有什么在运行"};
    finding.evidence.english += WhileBusy().english;
    finding.evidence.chinese += WhileBusy().chinese;
    finding.figures = {{"kind", "slow-pair"},
                       {"pair", fmt::format("{}-{}", worst.from, worst.to)},
                       {"pairs", names},
                       {"bytes_per_second", fmt::format("{:.0f}", worst.bytes_per_second)},
                       {"median_bytes_per_second", fmt::format("{:.0f}", slow.median_bytes_per_second)}};
    if (slow.rank) finding.figures.emplace_back("ranks", std::to_string(*slow.rank));
    report_.findings.push_back(std::move(finding));
  }

  // A suffix for statements about a speed.
  base::BilingualText WhileBusy() const {
    if (!report_.busy) return {};
    return {fmt::format("; but the load of this machine is {:.1f}, which may be all there is to it", report_.load),
            fmt::format("；但本机负载为 {:.1f}，也许只是因此", report_.load)};
  }

  void JudgeSpeed() {
    for (const OperationFigures& figures : report_.operations) {
      for (const SizeFigure& size : figures.sizes) {
        if (!IsSlow(size)) continue;
        Finding finding;
        finding.verdict = report_.busy ? Verdict::kCannotTell : Verdict::kWarn;
        finding.evidence = {fmt::format("{} of {} takes {:.1f} ms, and memory alone would take {:.1f} ms", figures.name,
                                        base::FormatByteSize(size.bytes), size.least * 1e3, *size.possible * 1e3),
                            fmt::format("{}（{}）用时 {:.1f} ms，按内存带宽应为 {:.1f} ms", figures.name,
                                        base::FormatByteSize(size.bytes), size.least * 1e3, *size.possible * 1e3)};
        finding.fix = {"see what else runs here (fulldeck top, load), and how many ranks share a core",
                       "查看本机还在运行什么（fulldeck top、负载），以及几个 rank 共用一个核"};
        finding.evidence.english += WhileBusy().english;
        finding.evidence.chinese += WhileBusy().chinese;
        finding.figures = {{"kind", "slow-collective"}, {"operation", figures.name}};
        report_.findings.push_back(std::move(finding));
      }
    }
  }

  void RecordSkipped(const std::vector<Step>& steps) {
    if (interrupted_) return;
    std::vector<std::string> missing;
    for (const Step& step : steps) {
      const std::string name = step.operation->name;
      const bool tried = given_up_.contains(name) || std::any_of(report_.operations.begin(), report_.operations.end(),
                                                                 [&](const auto& one) { return one.name == name; });
      if (!tried && std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(name);
    }
    const bool pairs_missing = plan_.ranks > 1 && report_.pairs.empty() && !given_up_.contains("send_receive") && !set_;
    if (pairs_missing) missing.emplace_back("send_receive");
    if (missing.empty()) return;
    Finding finding;
    finding.verdict = Verdict::kCannotTell;
    finding.evidence = {"not tried, because the ranks failed too often: " + base::Join(missing, ", "),
                        "由于 rank 多次失败，未测试：" + base::Join(missing, "、")};
    finding.fix = {"mend what stands above, and run this again", "先解决以上问题，再运行一次"};
    finding.figures = {{"kind", "not-tried"}};
    report_.findings.push_back(std::move(finding));
  }

  const ProofPlan& plan_;
  const std::function<void(const std::string&)>& log_line_;
  bench::RankLauncherConfig launcher_config_;
  std::string progress_path_;
  base::EventLoop loop_;
  bool interrupted_ = false;
  int restarts_ = 0;
  std::unique_ptr<bench::RankSet> set_;
  std::set<std::string> given_up_;
  std::set<std::string> reported_wrong_;
  std::set<std::pair<int, int>> reported_pairs_;
  ProofReport report_;
};

}  // namespace

int RanksFor(const device::Inventory& inventory) {
  int visible = 0;
  for (const device::Card* card : inventory.Cards()) visible += card->present && card->visible ? 1 : 0;
  return std::max(2, visible);
}

base::Result<void> ChooseDevices(const device::Inventory& inventory, ProofPlan& plan) {
  plan.devices.clear();
  plan.module.clear();
  if (plan.backend == "fulldeck" || plan.backend == "gloo" || plan.backend == "mpi") return {};
  bool known = false;
  for (const device::Card* card : inventory.Cards()) {
    if (card->collective_backend != plan.backend || !card->present) continue;
    known = true;
    if (!card->visible || !card->torch_device) continue;
    plan.devices.push_back(*card->torch_device);
    plan.module = card->torch_module;
  }
  if (!known) {
    return base::Error{fmt::format(
        "--backend {}: no card of this machine has it. See: fulldeck devices; gloo and fulldeck work everywhere",
        base::Printable(plan.backend))};
  }
  if (static_cast<int>(plan.devices.size()) < plan.ranks) {
    return base::Error{fmt::format("--backend {}: {} ranks need as many cards, and {} can be used. Take --nproc {}",
                                   base::Printable(plan.backend), plan.ranks, plan.devices.size(),
                                   plan.devices.size())};
  }
  return {};
}

base::Result<ProofReport> ProveCollectives(const ProofPlan& plan, const base::Environment& environment,
                                           const std::function<void(const std::string&)>& log_line) {
  if (plan.ranks < 1 || plan.ranks > kMaxRanks)
    return base::Error{fmt::format("--nproc {}: a group has 1 to {} ranks", plan.ranks, kMaxRanks)};
  if (const auto faults = ReadProofFaults(plan.fault); !faults) return faults.error();
  auto folder = bench::TemporaryRunFolder::Make(environment);
  if (!folder) return folder.error();
  return Proof(plan, environment, folder->path(), log_line).Run();
}

}  // namespace fulldeck::doctor
