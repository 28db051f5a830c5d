#include "cli/support_bundle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/files/open_beneath.h"
#include "base/files/system_root.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/python_start.h"
#include "base/text.h"
#include "cli/child_output.h"
#include "cli/run_report.h"
#include "cli/run_stacks.h"
#include "cli/version.h"
#include "job/runs/run_status.h"
#include "launcher/launch_info.h"
#include "wire/rank_board.h"

namespace fulldeck::cli {
namespace {

using std::chrono::seconds;

constexpr std::size_t kMergedLogEnd = std::size_t{512} << 10;
constexpr std::size_t kRankLogEnd = std::size_t{64} << 10;
constexpr std::size_t kFileEnd = std::size_t{256} << 10;
constexpr std::size_t kMaxOfAProgram = std::size_t{4} << 20;
constexpr std::size_t kMaxRanks = 64;
constexpr std::size_t kMaxSavedStacks = 8;

// Prints the names and versions of the packages that training runs use, without importing any of them.
constexpr char kPythonVersions[] =
    "import sys\n"
    "print('Python', sys.version)\n"
    "try:\n"
    "    from importlib import metadata\n"
    "    for name in sorted({(each.metadata['Name'] or '?') + ' ' + each.version for each in "
    "metadata.distributions()}):\n"
    "        print(name)\n"
    "except Exception as error:\n"
    "    print('packages cannot be listed:', error)\n";

// The end of a file, starting with a whole line; empty if the file does not exist. The error says why an existing
// file is not read: the owner of the folder may have put a link to another user's file there.
base::Result<std::string> EndOf(const std::string& folder, const std::string& name, std::size_t most) {
  const auto file = base::OpenBeneath(folder, name);
  if (!file && file.error().system_error == ENOENT) return std::string();
  if (!file) return file.error();
  struct stat facts {};
  if (fstat(file->get(), &facts) != 0 || facts.st_size == 0) return std::string();
  const auto size = static_cast<std::size_t>(facts.st_size);
  const std::size_t begin = size > most ? size - most : 0;
  std::string text = base::ReadRange(file->get(), begin, size - begin);
  if (begin > 0) {
    text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.insert(0, fmt::format("… the first {} are left out …\n", base::FormatByteSize(size - text.size())));
  }
  return text;
}

// The variables with which a running process was started.
base::Environment EnvironmentOf(int pid) {
  base::Environment environment;
  const auto text = base::SystemRoot().ReadFile(fmt::format("/proc/{}/environ", pid));
  if (!text) return environment;
  for (const std::string_view entry : base::Split(*text, '\0')) {
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos) {
      environment.Set(std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1)));
    }
  }
  return environment;
}

std::string SecondsSince(std::uint64_t at_ns, base::TimePoint now) {
  const auto age = wire::Age(at_ns, now);
  return age ? fmt::format("{:.3f} s ago", std::chrono::duration<double>(*age).count()) : "never";
}

std::string BoardText(const wire::RankBoard& board) {
  const base::TimePoint now = base::SteadyClock::Instance().Now();
  const wire::BoardRun& run = board.run();
  std::string text = fmt::format("run {}, attempt {}, ranks {} to {} of {}\n", run.run_id, run.attempt, run.first_rank,
                                 run.first_rank + run.local_ranks - 1, run.world_size);
  for (int local = 0; local < run.local_ranks && local < static_cast<int>(kMaxRanks); ++local) {
    text += fmt::format("\nrank {}\n", run.first_rank + local);
    if (const auto reported = board.ReadSupervision(local)) {
      text += fmt::format("  supervision: pid {}, {} since {}, card '{}', processors {}\n", reported->process.pid,
                          wire::RankStateName(reported->state), SecondsSince(reported->since_ns, now), reported->card,
                          reported->processors);
    }
    if (const auto reported = board.ReadProcess(local)) {
      text += fmt::format("  process: pid {}, {}, loaded {}, stack signal {}\n", reported->process.pid,
                          reported->program, reported->loaded, reported->stack_signal);
    }
    if (const auto reported = board.ReadLoop(local)) {
      text += fmt::format("  loop: {} since {}; step {} of {}, told {}, the last took {:.3f} s{}\n",
                          wire::PhaseName(reported->phase), SecondsSince(reported->phase_since_ns, now), reported->step,
                          reported->total_steps, SecondsSince(reported->step_at_ns, now),
                          static_cast<double>(reported->last_step_ns) * 1e-9,
                          reported->loss ? fmt::format("; loss {:.6g}", *reported->loss) : "");
      text += fmt::format(
          "  time: data {:.3f} s, compute {:.3f} s, communication {:.3f} s, checkpoint {:.3f} s\n",
          static_cast<double>(reported->data_ns) * 1e-9, static_cast<double>(reported->compute_ns) * 1e-9,
          static_cast<double>(reported->communication_ns) * 1e-9, static_cast<double>(reported->checkpoint_ns) * 1e-9);
    }
    if (const auto reported = board.ReadHeartbeat(local)) {
      text += fmt::format("  heartbeat {} {}\n", reported->count, SecondsSince(reported->at_ns, now));
    }
    for (int slot = 0; slot < FULLDECK_BOARD_GROUPS; ++slot) {
      const auto reported = board.ReadCollective(local, slot);
      if (!reported) continue;
      text += fmt::format("  group {} ({} of {}): {} #{} of {} {}, begun {}, completed #{}, waited {:.3f} s in all\n",
                          reported->name, reported->rank, reported->size, wire::OperationName(reported->operation),
                          reported->sequence, reported->count, wire::DatatypeName(reported->datatype),
                          SecondsSince(reported->since_ns, now), reported->completed,
                          static_cast<double>(reported->waited_ns) * 1e-9);
    }
    if (const auto reported = board.ReadError(local)) {
      text +=
          fmt::format("  error {} of {}: {}\n", SecondsSince(reported->at_ns, now), reported->count, reported->text);
    }
  }
  return text;
}

class BundleCollector {
 public:
  BundleCollector(const job::RunLogs& run, job::Redaction redaction) : run_(run), redaction_(std::move(redaction)) {}

  SupportBundle Collect() {
    const std::string note = Read(run_.directory, launcher::kLaunchInfo, kMaxOfAProgram);
    redaction_.Learn(launcher::MarksOfLaunchInfo(note));
    redaction_.LearnSecret(launcher::RendezvousTokenOf(note));
    if (run_.entry && run_.entry->alive) {
      // Values from the environment of the ranks may appear in their logs and stacks.
      redaction_.Learn(EnvironmentOf(run_.entry->record.front.pid));
      for (const auto& rank : run_.entry->record.ranks) redaction_.Learn(EnvironmentOf(rank.process.pid));
      AddRunning(*run_.entry);
    }
    if (!note.empty()) Add("launch.json", launcher::WithoutMarks(note));
    AddLogs();
    AddSavedStacks();
    AddJob();
    AddVersions();
    AddProgram("devices.json", {base::ExecutablePath(), "devices", "--json"}, seconds(20));
    AddProgram("doctor.json", {base::ExecutablePath(), "doctor", "--json"}, seconds(30));
    AddAbout();
    return std::move(bundle_);
  }

 private:
  void Add(const std::string& name, std::string_view text) {
    bundle_.files.push_back({redaction_.Text("fulldeck-" + run_.name) + "/" + name,
                             name.ends_with(".json") ? redaction_.JsonText(text) : redaction_.Text(text)});
  }

  // FOLDER/name; empty if it does not exist or must not be read.
  std::string Read(const std::string& folder, const std::string& name, std::size_t most) {
    auto text = EndOf(folder, name, most);
    if (text) return std::move(*text);
    bundle_.left_out.push_back(text.error().message);
    return "";
  }

  void AddFile(const std::string& name, const std::string& folder, const std::string& file, std::size_t most) {
    const std::string text = Read(folder, file, most);
    if (!text.empty()) Add(name, text);
  }

  void AddRunning(const job::RunRegistry::Entry& entry) {
    job::RunStatusReader reader;
    Add("status.json", RunsJson({reader.Read(entry)}, nullptr));
    const auto board =
        wire::RankBoard::Open(fmt::format("/proc/{}/fd/{}", entry.record.supervisor.pid, entry.record.board_fd));
    if (board) {
      Add("board.txt", BoardText(*board));
    } else {
      bundle_.left_out.push_back("the rank board: " + board.error().message);
    }
    auto targets = StackTargets(entry, std::nullopt);
    if (!targets || targets->empty()) return;
    const auto ranks = CollectStacks(std::move(*targets));
    std::string text;
    for (const auto& rank : ranks.value_or(std::vector<diagnosis::RankStacks>())) {
      text += base::Join(rank.AllLines(), "\n") + "\n\n";
    }
    Add("stacks.txt", text);
  }

  void AddLogs() {
    AddFile("logs/train.log", run_.directory, "logs/train.log", kMergedLogEnd);
    const int attempt = job::LatestAttempt(run_.directory).value_or(0);
    const std::string folder = fmt::format("attempt_{}", attempt);
    std::vector<int> ranks;
    for (const std::string& name : base::SystemRoot().List(run_.directory + "/" + folder)) {
      if (const auto rank = base::ParseInteger<int>(name)) ranks.push_back(*rank);
    }
    std::sort(ranks.begin(), ranks.end());
    if (ranks.size() > kMaxRanks) {
      bundle_.left_out.push_back(fmt::format("logs of {} more ranks", ranks.size() - kMaxRanks));
      ranks.resize(kMaxRanks);
    }
    for (const int rank : ranks) {
      for (const char* file : {"stderr.log", "stdout.log", "error.json", "crash.txt", "stacks.txt"}) {
        const std::string name = fmt::format("{}/{}/{}", folder, rank, file);
        AddFile(name, run_.directory, name, std::string_view(file).ends_with(".log") ? kRankLogEnd : kFileEnd);
      }
    }
  }

  void AddSavedStacks() {
    std::vector<std::pair<int, std::string>> saved;
    for (const std::string& name : base::SystemRoot().List(run_.directory)) {
      if (!name.starts_with("stacks-") || !name.ends_with(".txt")) continue;
      const auto number = base::ParseInteger<int>(std::string_view(name).substr(7, name.size() - 11));
      if (number) saved.emplace_back(*number, name);
    }
    std::sort(saved.rbegin(), saved.rend());
    for (std::size_t i = 0; i < std::min(saved.size(), kMaxSavedStacks); ++i) {
      AddFile(saved[i].second, run_.directory, saved[i].second, kFileEnd);
    }
  }

  // A run of `fulldeck train` is in JOB/logs/RUN.
  void AddJob() {
    const std::filesystem::path job = std::filesystem::path(run_.directory).parent_path().parent_path();
    std::error_code ignored;
    if (!std::filesystem::exists(job / "recipe.resolved", ignored)) return;
    for (const char* file : {"config.toml", "recipe.resolved", "report.txt"}) {
      AddFile(std::string("job/") + file, job.string(), file, kFileEnd);
    }
  }

  void AddVersions() {
    utsname kernel{};
    uname(&kernel);
    std::string text = fmt::format("fulldeck {}\n{} {} {} {}\n\n", kVersion, kernel.sysname, kernel.release,
                                   kernel.version, kernel.machine);
    for (const char* file : {"/etc/os-release", "/proc/driver/nvidia/version", "/proc/meminfo", "/proc/loadavg"}) {
      const auto content = base::SystemRoot().ReadFile(file, 4096);
      if (content) text += fmt::format("{}:\n{}\n", file, *content);
    }
    Add("versions.txt", text);
    const std::string python = PythonOfRun();
    if (python.empty()) return;
    const base::PythonStart start =
        base::StartPythonScript(python, kPythonVersions, {}, base::Environment::OfThisProcess());
    AddProgram("python.txt", start.arguments, seconds(15), start.Variables());
  }

  // The interpreter of the ranks; empty: they do not run Python, or it is unknown.
  std::string PythonOfRun() const {
    if (!run_.entry || run_.entry->record.command.empty()) return "";
    const std::string& program = run_.entry->record.command.front();
    const std::string name = program.substr(program.rfind('/') + 1);
    return name.starts_with("python") && program.starts_with("/") ? program : "";
  }

  void AddProgram(const std::string& name, const std::vector<std::string>& arguments, base::Duration timeout,
                  std::optional<std::vector<std::string>> environment = std::nullopt) {
    const auto output = RunForOutput(arguments, timeout, kMaxOfAProgram, std::move(environment));
    if (!output) {
      bundle_.left_out.push_back(name + ": " + output.error().message);
      return;
    }
    if (!output->text.empty()) Add(name, output->text);
    // Whatever the exit code: the output about an error is useful, too.
    if (output->text.empty() || output->timed_out) {
      const std::string_view first_line = std::string_view(output->errors).substr(0, output->errors.find('\n'));
      bundle_.left_out.push_back(name + ": " + (output->timed_out ? "it took too long" : base::Printable(first_line)));
    }
  }

  void AddAbout() {
    std::string text = fmt::format(
        "What fulldeck {} knows of run {}, for support.\n\nTaken out: values of variables, flags and keys named TOKEN, "
        "SECRET, PASSWORD, KEY, CREDENTIAL and the like, what looks like a key, users in URLs, and the run id where it "
        "is the token of a rendezvous. Homes are ~, the user is 'user'. Long files are here with their ends.\n",
        kVersion, run_.name);
    for (const std::string& each : bundle_.left_out) text += "Not here: " + each + "\n";
    Add("about.txt", text);
    std::rotate(bundle_.files.begin(), bundle_.files.end() - 1, bundle_.files.end());
  }

  const job::RunLogs& run_;
  job::Redaction redaction_;
  SupportBundle bundle_;
};

}  // namespace

SupportBundle CollectBundle(const job::RunLogs& run, job::Redaction redaction) {
  return BundleCollector(run, std::move(redaction)).Collect();
}

}  // namespace fulldeck::cli
