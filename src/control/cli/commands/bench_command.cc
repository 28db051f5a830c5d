// fulldeck bench collectives: how fast the collectives are on this machine, compared with other implementations.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/collectives_bench.h"
#include "bench/host_memory.h"
#include "bench/rank_process.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/watch.h"

namespace fulldeck::cli {
namespace {

using bench::Contender;

struct Options {
  std::string what;
  std::string ranks = "2,8";
  std::string sizes = "4KiB,64KiB,1MiB,16MiB,84MiB,256MiB";
  std::string operations = "all_reduce";
  std::string datatype = "float32";
  std::string peers = "auto";
  std::string python = "python3";
  double seconds = 2;
  double timeout_seconds = 300;
  int rounds = 1;
  std::string device = "cpu";
  bool shared = false;
  bool through_torch = false;
  bool timeline = false;
  bool json = false;
  std::string spoiled;
};

base::Error NotOneOf(const char* option, std::string_view word, const std::vector<std::string>& right) {
  const auto near = base::ClosestMatch(word, right);
  return base::Error{fmt::format("{}: there is no '{}'{} It takes: {}", option, base::Printable(word),
                                 near ? fmt::format("; did you mean '{}'?", *near) : ".", base::Join(right, ", "))};
}

base::Result<std::vector<int>> ParseRanks(const std::string& text) {
  std::vector<int> all;
  for (const std::string_view part : base::Split(text, ',')) {
    const auto ranks = base::ParseInteger<int>(base::Trim(part));
    if (!ranks) return base::Error{fmt::format("--nproc: '{}' is no number of ranks", base::Printable(part))};
    all.push_back(*ranks);
  }
  return all;
}

base::Result<std::vector<std::uint64_t>> ParseSizes(const std::string& text) {
  std::vector<std::uint64_t> all;
  for (const std::string_view part : base::Split(text, ',')) {
    const auto bytes = base::ParseByteSize(base::Trim(part));
    if (!bytes) {
      return base::Error{
          fmt::format("--sizes: '{}' is no size; right forms: 4096, 64KiB, 1.5GiB", base::Printable(part))};
    }
    all.push_back(*bytes);
  }
  return all;
}

base::Result<std::vector<Contender>> ParsePeers(const std::string& text) {
  if (text == "none") return std::vector<Contender>();
  if (text == "auto") return std::vector<Contender>{Contender::kGloo, Contender::kOpenMpi};
  std::vector<Contender> all;
  for (const std::string_view part : base::Split(text, ',')) {
    if (part == "gloo") {
      all.push_back(Contender::kGloo);
    } else if (part == "openmpi") {
      all.push_back(Contender::kOpenMpi);
    } else {
      return NotOneOf("--peers", part, {"gloo", "openmpi", "none", "auto"});
    }
  }
  return all;
}

base::Result<bench::BenchPlan> PlanOf(const Options& options) {
  bench::BenchPlan plan;
  auto ranks = ParseRanks(options.ranks);
  if (!ranks) return ranks.error();
  plan.ranks = std::move(*ranks);
  auto sizes = ParseSizes(options.sizes);
  if (!sizes) return sizes.error();
  plan.sizes = std::move(*sizes);
  for (const std::string_view part : base::Split(options.operations, ',')) {
    const bench::Operation* operation = bench::FindOperation(base::Trim(part));
    if (operation == nullptr) return NotOneOf("--operations", part, bench::OperationNames());
    plan.operations.push_back(operation);
  }
  plan.element = bench::FindElement(options.datatype);
  if (plan.element == nullptr) return NotOneOf("--datatype", options.datatype, bench::ElementNames());
  auto peers = ParsePeers(options.peers);
  if (!peers) return peers.error();
  plan.on_cuda = options.device == "cuda";
  if (plan.on_cuda) {
    // Implementations without tensors have no buffers on cards either.
    if (options.shared || options.timeline) return base::Error{"--shared and --timeline are for --device cpu"};
    plan.contenders = {Contender::kTorch};
    std::erase(*peers, Contender::kOpenMpi);
  } else {
    plan.contenders = {Contender::kFulldeck};
    if (options.shared) plan.contenders.push_back(Contender::kFulldeckShared);
    if (options.through_torch) plan.contenders.push_back(Contender::kTorch);
  }
  plan.contenders.insert(plan.contenders.end(), peers->begin(), peers->end());
  plan.python = options.python;
  plan.seconds = options.seconds;
  plan.timeout_seconds = options.timeout_seconds;
  plan.rounds = options.rounds;
  plan.timeline = options.timeline;
  for (const Contender contender : plan.contenders) {
    if (options.spoiled == bench::NameOf(contender)) plan.spoiled = contender;
  }
  const auto checked = bench::CheckPlan(plan, bench::AvailableMemory(base::SystemRoot()));
  if (!checked) return checked.error();
  return plan;
}

wire::ExitCode RunBench(const Options& options) {
  const auto plan = PlanOf(options);
  if (!plan) {
    base::Log(base::Severity::kError, plan.error().message + ". See: fulldeck bench --help");
    return wire::ExitCode::kUsage;
  }
  const auto log_line = [](const std::string& line) { base::Log(base::Severity::kWarning, line); };
  const auto figures = bench::RunCollectivesBench(*plan, base::Environment::OfThisProcess(), log_line);
  if (!figures) {
    base::Log(base::Severity::kError, figures.error().message);
    return wire::ExitCode::kFailed;
  }
  const wire::ExitCode printed =
      Print(options.json ? BenchJson(*plan, *figures) : BenchText(*plan, *figures, StdoutWantsColor()));
  for (const std::string& failure : figures->failures) base::Log(base::Severity::kError, failure);
  for (const std::string& wrong : figures->wrong_values) base::Log(base::Severity::kError, "WRONG VALUE: " + wrong);
  if (figures->interrupted) base::Log(base::Severity::kError, "interrupted; what was measured until then stands above");
  const bool good = figures->failures.empty() && figures->wrong_values.empty() && !figures->interrupted;
  return good ? printed : wire::ExitCode::kFailed;
}

}  // namespace

Action AddBench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "bench", "Measure the collectives on this machine, beside Gloo and Open MPI");
  command.Option("WHAT", options->what, "collectives").Required().TypeName("").OneOf({"collectives"});
  command.Option("--nproc", options->ranks, "Numbers of ranks").TypeName("N,N...").ShowDefault();
  command.Option("--sizes", options->sizes, "Bytes of the whole buffer").TypeName("SIZE,SIZE...").ShowDefault();
  command
      .Option("--operations", options->operations,
              "Of " + base::Join(bench::OperationNames(), ", ") + "; those that reduce take the sum")
      .TypeName("NAME,NAME...")
      .ShowDefault();
  command.Option("--datatype", options->datatype, "Of " + base::Join(bench::ElementNames(), ", "))
      .TypeName("TYPE")
      .ShowDefault();
  command.Option("--peers", options->peers, "gloo, openmpi, none, or auto: those that are installed")
      .TypeName("PEER,PEER...")
      .ShowDefault();
  command.Option("--python", options->python, "The Python whose torch has Gloo").TypeName("PYTHON").ShowDefault();
  command.Option("--seconds", options->seconds, "For each figure, with the checking")
      .TypeName("SECONDS")
      .ShowDefault()
      .InRange(0.001, 3600.0);
  command.Option("--rounds", options->rounds, "How often the contenders take turns at each size")
      .TypeName("TIMES")
      .ShowDefault()
      .InRange(1, 100);
  command.Option("--timeout", options->timeout_seconds, "A figure that takes longer is given up")
      .TypeName("SECONDS")
      .ShowDefault()
      .InRange(1.0, 86400.0);
  command.Option("--device", options->device, "cpu, or cuda: tensors on cards, fulldeck through torch beside Gloo")
      .TypeName("cpu|cuda")
      .ShowDefault()
      .OneOf({"cpu", "cuda"});
  command.Flag("--shared", options->shared, "Also all_reduce with buffers in shared memory (fulldeck_allocate)");
  command.Flag("--through-torch", options->through_torch, "Also fulldeck through torch in Python");
  command.Flag("--timeline", options->timeline, "Also what each rank did in one all_reduce of each size");
  command.Flag("--json", options->json, "One JSON object for programs (docs/bench.md)");
  command.Option("--spoil", options->spoiled, "For tests: the contender whose last rank gets a wrong value").Hidden();
  command.Footer(
      "Every value of every result is compared with what it must be; a wrong one fails the command.\n"
      "Examples:\n"
      "  fulldeck bench collectives\n"
      "  fulldeck bench collectives --nproc 8 --sizes 84MiB --shared --python .venv/bin/python\n"
      "  fulldeck bench collectives --operations all_gather,reduce_scatter --datatype bfloat16 --peers none\n"
      "  fulldeck bench collectives --nproc 8 --sizes 84MiB --peers none --timeline --json > timeline.json");
  return [options] { return RunBench(*options); };
}

// The program that bench starts as a rank, directly or under mpirun. Internal, so not in the help.
Action AddBenchRank(CLI::App& app) {
  struct RankOptions {
    std::string library;
    std::string socket;
    int rank = 0;
    int size = 1;
    double timeout_seconds = 60;
  };
  auto options = std::make_shared<RankOptions>();
  CommandOptions command(app, "bench-rank", "One rank of a bench");
  command.Hide();
  command.Option("LIBRARY", options->library).Required().OneOfShown({"fulldeck", "openmpi"});
  command.Option("SOCKET", options->socket).Required();
  command.Option("--rank", options->rank);
  command.Option("--size", options->size);
  command.Option("--timeout", options->timeout_seconds);
  return [options] {
    bench::RankProcess process{options->socket, std::nullopt};
    if (options->library == "fulldeck") {
      process.fulldeck = {options->rank, options->size, options->socket, options->timeout_seconds};
    }
    return bench::RunRankProcess(process) == 0 ? wire::ExitCode::kOk : wire::ExitCode::kFailed;
  };
}

}  // namespace fulldeck::cli
