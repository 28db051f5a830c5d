// fulldeck logs: the past and current output of the ranks of a run.
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/environment.h"
#include "base/event_loop.h"
#include "base/files/unique_fd.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "job/runs/run_logs.h"
#include "job/runs/run_registry.h"
#include "job/runs/tailed_file.h"
#include "wire/process_identity.h"

namespace fulldeck::cli {
namespace {

using base::Log;
using base::Severity;
using wire::ExitCode;

struct Options {
  std::string run;
  bool follow = false;
  int rank = -1;
  long long lines = -1;
  bool only_stdout = false;
  bool only_stderr = false;
};

constexpr std::uint64_t kLinesWhenFollowing = 100;
// For kernels that cannot report new bytes or the end of a process.
constexpr std::chrono::milliseconds kPollInterval{250};

class LogsCommand {
 public:
  LogsCommand(const Options& options, job::RunLogs logs) : options_(options), logs_(std::move(logs)) {
    if (options.rank >= 0) choice_.rank = options.rank;
    if (options.only_stdout) choice_.standard_error = false;
    if (options.only_stderr) choice_.standard_output = false;
  }

  ExitCode Run() {
    std::optional<std::uint64_t> lines;
    if (options_.follow) lines = kLinesWhenFollowing;
    if (options_.lines >= 0) lines = static_cast<std::uint64_t>(options_.lines);
    const auto opened = OpenFiles(lines);
    if (!opened) return Refuse(ExitCode::kFailed, opened.error().message);
    return options_.follow ? Follow() : ShowOnce();
  }

 private:
  base::Result<void> OpenFiles(std::optional<std::uint64_t> lines) {
    attempt_ = job::LatestAttempt(logs_.directory);
    const auto paths = job::LogFiles(logs_, choice_);
    if (!paths) return paths.error();
    files_.clear();
    for (const std::string& path : *paths) {
      files_.emplace_back(logs_.directory, path.substr(logs_.directory.size() + 1), lines);
    }
    return {};
  }

  // As tail does with several files: prints a title whenever the file changes.
  void Pass(const job::TailedFile& file, std::string_view bytes) {
    if (files_.size() > 1 && last_shown_ != file.path()) {
      fmt::print(stdout, "{}==> {} <==\n", last_shown_.empty() ? "" : "\n", base::Printable(file.path()));
      last_shown_ = file.path();
    }
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  }

  // Reads a limited amount of what is there now, so that a flood does not delay Ctrl-C; more_ tells whether there may
  // be more. Returns false if a file cannot be read or the output has no reader any more.
  bool Poll() {
    more_ = false;
    for (job::TailedFile& file : files_) {
      const auto more = file.Poll([&](std::string_view bytes) { Pass(file, bytes); });
      if (!more) {
        Log(Severity::kError, more.error().message);
        return false;
      }
      more_ = more_ || *more;
    }
    std::fflush(stdout);
    return std::ferror(stdout) == 0;
  }

  bool PollAll() {
    do {
      if (!Poll()) return false;
    } while (more_);
    return true;
  }

  ExitCode ShowOnce() {
    if (!PollAll()) return ExitCode::kFailed;
    for (const job::TailedFile& file : files_) {
      if (file.opened()) return ExitCode::kOk;
    }
    return Refuse(ExitCode::kFailed, fmt::format("there is no {} (yet)", base::Printable(files_.front().path())));
  }

  ExitCode Follow() {
    base::EventLoop loop;
    const auto signals = loop.OnSignals({SIGINT, SIGTERM}, [&](int) { loop.Stop(); });
    if (!signals) return Refuse(ExitCode::kFailed, signals.error().message);
    notifier_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    bool is_watching = notifier_.valid();
    if (is_watching) {
      const auto watch = loop.WhenReadable(notifier_.get(), [&] {
        DrainNotifier();
        PollAgain(loop);
      });
      is_watching = watch.ok() && WatchFolders();
    }
    if (!is_watching) PollOnTimer(loop);
    PollAgain(loop);
    AwaitEnd(loop);
    loop.Run();
    return code_;
  }

  void PollAgain(base::EventLoop& loop) {
    WatchFolders();
    const auto latest = job::LatestAttempt(logs_.directory);
    bool fine = true;
    if (choice_.rank && !attempt_) {
      // Read nothing before the folder of the first attempt exists; otherwise its files would be read twice.
      if (!latest) return;
      fine = OpenFiles(std::nullopt).ok();
      WatchFolders();
    }
    fine = fine && Poll();
    // A restart continues in new files.
    if (fine && !more_ && choice_.rank && latest && *latest > *attempt_) {
      Log(Severity::kInfo, fmt::format("run {}: attempt {} begins", logs_.name, *latest + 1));
      fine = OpenFiles(std::nullopt).ok();
      WatchFolders();
      fine = fine && Poll();
    }
    if (!fine) {
      code_ = ExitCode::kFailed;
      return loop.Stop();
    }
    if (!more_ || poll_scheduled_) return;
    poll_scheduled_ = true;
    loop.After(base::Duration(0), [this, &loop] {
      poll_scheduled_ = false;
      PollAgain(loop);
    });
  }

  // A folder that is created later is added when the watch on its parent reports it. Returns false if no folder can
  // be watched.
  bool WatchFolders() {
    if (!notifier_.valid()) return false;
    std::vector<std::string> paths;
    for (const job::TailedFile& file : files_) paths.push_back(file.path());
    bool any = false;
    for (const std::string& folder : job::LogFolders(logs_, paths)) {
      constexpr std::uint32_t kEvents = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;
      if (inotify_add_watch(notifier_.get(), folder.c_str(), kEvents) >= 0) any = true;
    }
    return any;
  }

  void DrainNotifier() {
    std::array<char, 16384> events;
    while (read(notifier_.get(), events.data(), events.size()) > 0) {
    }
  }

  void PollOnTimer(base::EventLoop& loop) {
    loop.After(kPollInterval, [this, &loop] {
      PollAgain(loop);
      PollOnTimer(loop);
    });
  }

  // Ends the loop when the run has ended.
  void AwaitEnd(base::EventLoop& loop) {
    for (const wire::ProcessIdentity& process : Launcher()) {
      if (process.pid <= 0 || !wire::IsAlive(process)) continue;
      const auto waiting = loop.WhenExited(process.pid, [this, &loop](std::optional<int>) { AwaitEnd(loop); });
      if (waiting && wire::IsAlive(process)) return;
      // The pid may just have been reused, or this kernel cannot wait for the process.
      if (waiting) loop.Remove(*waiting);
      loop.After(kPollInterval, [this, &loop] { AwaitEnd(loop); });
      return;
    }
    // After the events that are still in the notifier.
    loop.After(base::Duration(0), [this, &loop] {
      PollAgain(loop);
      if (code_ == ExitCode::kOk && !PollAll()) code_ = ExitCode::kFailed;
      if (code_ == ExitCode::kOk) Log(Severity::kInfo, fmt::format("run {} has ended", logs_.name));
      loop.Stop();
    });
  }

  std::vector<wire::ProcessIdentity> Launcher() const {
    if (!logs_.entry || !logs_.entry->alive) return {};
    return {logs_.entry->record.supervisor, logs_.entry->record.front};
  }

  const Options options_;
  const job::RunLogs logs_;
  job::LogChoice choice_;
  std::optional<int> attempt_;
  std::vector<job::TailedFile> files_;
  std::string last_shown_;
  bool more_ = false;
  bool poll_scheduled_ = false;
  base::UniqueFd notifier_;
  ExitCode code_ = ExitCode::kOk;
};

ExitCode Logs(const Options& options) {
  if (options.only_stdout && options.only_stderr) {
    return Refuse(ExitCode::kUsage, "give --stdout or --stderr, not both; without them both are shown");
  }
  if (options.rank < 0 && (options.only_stdout || options.only_stderr)) {
    return Refuse(ExitCode::kUsage,
                  "--stdout and --stderr need --rank: the merged log holds both streams of all ranks");
  }
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) return Refuse(ExitCode::kFailed, "the working directory is gone: " + error.message());
  const job::RunRegistry registry(base::Environment::OfThisProcess());
  auto logs = job::FindRunLogs(registry, options.run, here);
  if (!logs) return Refuse(ExitCode::kFailed, logs.error().message);
  return LogsCommand(options, std::move(*logs)).Run();
}

}  // namespace

Action AddLogs(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CommandOptions command(app, "logs", "Show what the ranks of a run said, and what they say now");
  command.Option("RUN", options->run, "Run id, beginning of one, or run directory; default: the only or newest run")
      .TypeName("");
  command.Flag("-f,--follow", options->follow, "Go on until the run has ended, or Ctrl-C");
  command.Option("--rank", options->rank, "Of this rank alone, latest attempt; default: all ranks, merged")
      .TypeName("N")
      .InRange(0, 1 << 30);
  command.Option("-n,--lines", options->lines, "Only the last LINES; default: all, with -f 100")
      .TypeName("LINES")
      .InRange(0LL, 1LL << 40);
  command.Flag("--stdout", options->only_stdout, "With --rank: standard output alone");
  command.Flag("--stderr", options->only_stderr, "With --rank: standard error alone");
  command.Footer(
      "Examples:\n"
      "  fulldeck logs -f\n"
      "  fulldeck logs 20260401-1 -n 50\n"
      "  fulldeck logs --rank 3 --stderr\n"
      "  fulldeck logs ./fulldeck_runs/20260401-1 | fulldeck explain -");
  return [options] { return Logs(*options); };
}

}  // namespace fulldeck::cli
