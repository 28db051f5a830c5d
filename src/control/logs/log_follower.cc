#include "logs/log_follower.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/files/unique_fd.h"
#include "logs/appended_log.h"
#include "logs/console.h"
#include "logs/followed_file.h"

namespace fulldeck::logs {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kChunk = 128 * 1024;
constexpr base::Duration kTurn = milliseconds(4);
constexpr int kChunksInATurn = 64;  // even if the clock does not advance
// Ranks that write many small lines would otherwise wake the launcher for each of them.
constexpr base::Duration kBetweenNotices = milliseconds(10);
constexpr base::Duration kUnwatchedPollInterval = milliseconds(100);
constexpr base::Duration kUnfinishedPollInterval = milliseconds(100);

}  // namespace

// No byte of a followed file is missed: Follow adds the inotify watch before it queues the first read, so a byte is
// either there at that read or causes a notice; an overflow of the notices queues every file; files without a watch
// are polled. Notices that arrive while the watch rests stay in the kernel.
//
// The loop is never held: a turn ends after kTurn or kChunksInATurn, and next_turn is set as long as `ready` is not
// empty. `ready` holds each entry at most once (waits_for_reading). Forget clears by_watch and `ready` before the
// entries to which they point.
struct LogFollower::Impl {
  struct Entry {
    Entry(base::UniqueFd fd, FollowedStream stream, FollowedFile::Destinations to)
        : file(std::move(fd), std::move(stream), to) {}
    FollowedFile file;
    int watch = -1;
    bool waits_for_reading = false;
  };
  using Timer = base::EventLoop::Id;

  Impl(base::EventLoop& the_loop, LogFollowerOptions the_options);
  ~Impl();

  void WatchNotices();
  void ReadNotices();
  void Watch(Entry& entry, const std::string& path);
  void Ready(Entry& entry);
  void AllReady(bool unwatched_only);
  void Turn();
  void RequestTurn();
  void ReadToTheEnd(base::TimePoint deadline);
  void Forget();
  void EndOfTurn();
  void Arm(Timer& timer, bool wanted, base::Duration delay, void (Impl::*action)());
  void PollUnwatched();
  void PollUnfinished();
  void ReportErrors();
  void ReportWarnings();
  void LogLine(std::string_view line);
  Console* ConsoleOf(int console_fd);
  AppendedLog* FilteredLog(const FollowedStream& stream);

  base::EventLoop& loop;
  LogFollowerOptions options;
  std::unique_ptr<Console> stderr_console;
  std::unique_ptr<Console> stdout_console;  // null if stderr_console serves both
  std::unique_ptr<AppendedLog> merged;
  std::map<std::string, std::unique_ptr<AppendedLog>> filtered;
  std::vector<std::unique_ptr<Entry>> entries;
  std::multimap<int, Entry*> by_watch;  // a file that is followed twice has one watch
  std::deque<Entry*> ready;
  std::vector<char> buffer;

  base::UniqueFd inotify;
  int inotify_error = 0;
  Timer notices = 0;  // the watch on inotify; 0 while it rests
  Timer notices_rest = 0;
  Timer next_turn = 0;  // set while files wait for their turn
  Timer unwatched_timer = 0;
  Timer unfinished_timer = 0;
  Timer retry_timer = 0;
  bool reported_unwatched = false;
  bool has_unwatched = false;

  std::vector<std::string> warnings;
  bool telling = false;
};

LogFollower::Impl::Impl(base::EventLoop& the_loop, LogFollowerOptions the_options)
    : loop(the_loop),
      options(std::move(the_options)),
      buffer(kChunk),
      inotify(options.inotify ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : -1),
      inotify_error(inotify.valid() ? 0 : errno) {
  if (!options.merged_path.empty()) merged = std::make_unique<AppendedLog>(options.merged_path, loop.clock());
  const std::string where = merged ? options.merged_path : "the ranks' own log files";
  stderr_console = std::make_unique<Console>(loop, options.stderr_fd, where);
  if (!LeadToTheSamePlace(options.stdout_fd, options.stderr_fd)) {
    stdout_console = std::make_unique<Console>(loop, options.stdout_fd, where);
  }
  RequestTurn();
  WatchNotices();
}

LogFollower::Impl::~Impl() {
  for (const Timer id : {notices, notices_rest, next_turn, unwatched_timer, unfinished_timer, retry_timer}) {
    if (id != 0) loop.Remove(id);
  }
}

void LogFollower::Impl::WatchNotices() {
  notices_rest = 0;
  if (!inotify.valid()) return;
  const auto watch = loop.WhenReadable(inotify.get(), [this] { ReadNotices(); });
  FULLDECK_CHECK(watch.ok());
  notices = *watch;
}

void LogFollower::Impl::ReadNotices() {
  alignas(inotify_event) std::array<char, 64 * 1024> bytes;
  const ssize_t count = read(inotify.get(), bytes.data(), bytes.size());
  for (ssize_t at = 0; at + static_cast<ssize_t>(sizeof(inotify_event)) <= count;) {
    inotify_event event{};
    std::memcpy(&event, bytes.data() + at, sizeof event);
    at += static_cast<ssize_t>(sizeof event + event.len);
    if ((event.mask & IN_Q_OVERFLOW) != 0) AllReady(false);
    const auto [first, last] = by_watch.equal_range(event.wd);
    for (auto found = first; found != last; ++found) {
      Ready(*found->second);
      if ((event.mask & IN_ATTRIB) != 0) found->second->file.CheckDeleted();
    }
  }
  loop.Remove(notices);
  notices = 0;
  notices_rest = loop.After(kBetweenNotices, [this] { WatchNotices(); });
  Turn();
}

void LogFollower::Impl::Watch(Entry& entry, const std::string& path) {
  entry.watch = inotify.valid() ? inotify_add_watch(inotify.get(), path.c_str(), IN_MODIFY | IN_ATTRIB) : -1;
  if (entry.watch >= 0) {
    by_watch.emplace(entry.watch, &entry);
    return;
  }
  const int error = inotify.valid() ? errno : inotify_error;
  has_unwatched = true;
  if (std::exchange(reported_unwatched, true) || !options.inotify) return;
  warnings.push_back("the kernel has no inotify watch left for " + path + " (" + std::strerror(error) +
                     "); such files are looked at every 100 ms. To change that, raise fs.inotify.max_user_watches and "
                     "fs.inotify.max_user_instances.");
}

void LogFollower::Impl::Ready(Entry& entry) {
  if (std::exchange(entry.waits_for_reading, true)) return;
  ready.push_back(&entry);
}

void LogFollower::Impl::AllReady(bool unwatched_only) {
  for (const auto& entry : entries) {
    if (!unwatched_only || entry->watch < 0) Ready(*entry);
  }
}

void LogFollower::Impl::Turn() {
  base::TimePoint now = loop.clock().Now();
  const base::TimePoint deadline = now + kTurn;
  for (int chunk = 0; chunk < kChunksInATurn && !ready.empty() && now < deadline; ++chunk) {
    Entry& entry = *ready.front();
    ready.pop_front();
    entry.waits_for_reading = false;
    if (entry.file.ReadSome(buffer, kChunk, now)) Ready(entry);
    now = loop.clock().Now();
  }
  if (!ready.empty()) RequestTurn();
  EndOfTurn();
}

void LogFollower::Impl::RequestTurn() {
  if (next_turn != 0) return;
  next_turn = loop.After(base::Duration(0), [this] {
    next_turn = 0;
    Turn();
  });
}

void LogFollower::Impl::EndOfTurn() {
  stderr_console->Flush();
  if (stdout_console) stdout_console->Flush();
  ReportErrors();
  bool failing = false;
  if (merged) {
    merged->Flush();
    failing = merged->failing();
  }
  for (const auto& entry : filtered) {
    entry.second->Flush();
    failing = failing || entry.second->failing();
  }
  const bool waits =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry->file.HasPending(); });
  Arm(unfinished_timer, waits, kUnfinishedPollInterval, &Impl::PollUnfinished);
  Arm(unwatched_timer, has_unwatched, kUnwatchedPollInterval, &Impl::PollUnwatched);
  Arm(retry_timer, failing, AppendedLog::kRetryAfter, &Impl::EndOfTurn);
  ReportWarnings();
}

void LogFollower::Impl::Arm(Timer& timer, bool wanted, base::Duration delay, void (Impl::*action)()) {
  if (!wanted || timer != 0) return;
  timer = loop.After(delay, [this, &timer, action] {
    timer = 0;
    (this->*action)();
  });
}

void LogFollower::Impl::PollUnwatched() {
  AllReady(true);
  Turn();
}

void LogFollower::Impl::PollUnfinished() {
  const base::TimePoint now = loop.clock().Now();
  for (const auto& entry : entries) entry->file.ShowPending(now);
  EndOfTurn();
}

void LogFollower::Impl::ReportErrors() {
  const auto report_error = [this](Console* console, const char* name) {
    const std::string trouble = console == nullptr ? std::string() : console->TakeError();
    if (trouble.empty() || !merged) return;
    merged->PutLine({},
                    std::string("fulldeck: ") + name + " cannot be written any more (" + trouble +
                        "); the run goes on, and nothing is shown there",
                    {});
  };
  report_error(stderr_console.get(), stdout_console ? "standard error" : "standard output and error");
  report_error(stdout_console.get(), "standard output");
}

void LogFollower::Impl::ReportWarnings() {
  const auto take = [this](std::string warning) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  };
  if (merged) take(merged->TakeWarning());
  for (const auto& entry : filtered) take(entry.second->TakeWarning());
  for (const auto& entry : entries) take(entry->file.TakeWarning());
  // `warn` may call LogLine, which comes here again. The nested call only adds warnings; the outer call reports them.
  if (std::exchange(telling, true)) return;
  while (!warnings.empty()) {
    const std::string warning = std::move(warnings.front());
    warnings.erase(warnings.begin());
    if (options.warn) options.warn(warning);
  }
  telling = false;
}

void LogFollower::Impl::LogLine(std::string_view line) {
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  for (;;) {
    const std::size_t newline = line.find('\n');
    std::string_view one = line.substr(0, newline);
    do {
      const std::string_view chunk = one.substr(0, LineSplitter::kLongestLine);
      one.remove_prefix(chunk.size());
      const std::string_view mark = one.empty() ? std::string_view() : kLineGoesOn;
      if (merged) merged->PutLine({}, chunk, mark);
      stderr_console->PutOurLine(chunk);
    } while (!one.empty());
    if (newline == std::string_view::npos) break;
    line.remove_prefix(newline + 1);
  }
  EndOfTurn();
}

Console* LogFollower::Impl::ConsoleOf(int console_fd) {
  if (console_fd != 1 && console_fd != 2) return nullptr;
  Console* console = console_fd == 1 && stdout_console ? stdout_console.get() : stderr_console.get();
  return console->on() ? console : nullptr;
}

AppendedLog* LogFollower::Impl::FilteredLog(const FollowedStream& stream) {
  if (stream.filtered_path.empty() || stream.filters.empty()) return nullptr;
  auto& log = filtered[stream.filtered_path];
  if (!log) log = std::make_unique<AppendedLog>(stream.filtered_path, loop.clock());
  return log.get();
}

void LogFollower::Impl::ReadToTheEnd(base::TimePoint deadline) {
  struct Rest {
    FollowedFile* file;
    std::uint64_t end;
  };
  std::deque<Rest> rests;
  for (const auto& entry : entries) {
    // If a file was truncated, a read that finds nothing resets the offset to its start.
    struct stat status {};
    if (fstat(entry->file.fd(), &status) != 0) continue;
    const auto end = static_cast<std::uint64_t>(status.st_size);
    if (end < entry->file.offset()) entry->file.ReadSome(buffer, kChunk, loop.clock().Now());
    if (end > entry->file.offset()) rests.push_back({&entry->file, end});
  }
  while (!rests.empty()) {
    const Rest rest = rests.front();
    rests.pop_front();
    Console* console = rest.file->console();
    if (console != nullptr) console->WaitUntilQueued(Console::kQueue / 2, deadline);
    const std::uint64_t left = rest.end - rest.file->offset();
    const bool more_follows = rest.file->ReadSome(buffer, std::min<std::uint64_t>(left, kChunk), loop.clock().Now());
    if (more_follows && rest.file->offset() < rest.end) rests.push_back(rest);
  }
}

void LogFollower::Impl::Forget() {
  for (const auto& entry : by_watch) inotify_rm_watch(inotify.get(), entry.first);
  by_watch.clear();
  ready.clear();
  for (const auto& entry : entries) entry->file.Finish();
  ReportWarnings();
  entries.clear();
  has_unwatched = false;
}

LogFollower::LogFollower(base::EventLoop& loop, LogFollowerOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(options))) {}

LogFollower::~LogFollower() = default;

base::Result<void> LogFollower::Follow(FollowedStream stream) {
  auto file = FollowedFile::Open(stream.path);
  if (!file) return file.error();
  FollowedFile::Destinations to;
  to.console = impl_->ConsoleOf(stream.console_fd);
  to.merged = stream.merged ? impl_->merged.get() : nullptr;
  to.filtered = impl_->FilteredLog(stream);
  to.color = to.console != nullptr && to.console->is_terminal() && impl_->options.color;
  if (to.console == nullptr && to.merged == nullptr && to.filtered == nullptr) return {};
  const std::string path = stream.path;
  impl_->entries.push_back(std::make_unique<Impl::Entry>(std::move(*file), std::move(stream), to));
  Impl::Entry& entry = *impl_->entries.back();
  impl_->Watch(entry, path);
  impl_->Ready(entry);
  impl_->RequestTurn();
  return {};
}

void LogFollower::LogLine(std::string_view line) {
  impl_->LogLine(line);
}

void LogFollower::ShowProgress(std::string_view line) {
  impl_->stderr_console->SetProgress(line);
  impl_->stderr_console->Flush();
}

void LogFollower::Drain(base::Duration timeout) {
  Impl& state = *impl_;
  const auto& clock = base::SteadyClock::Instance();
  const base::TimePoint deadline = clock.Now() + timeout;
  state.ReadToTheEnd(deadline);
  state.Forget();
  if (state.merged) state.merged->Finish();
  for (const auto& entry : state.filtered) entry.second->Finish();
  state.stderr_console->SetProgress({});
  state.EndOfTurn();
  for (Console* console : {state.stderr_console.get(), state.stdout_console.get()}) {
    if (console != nullptr && !console->WaitUntilQueued(0, deadline)) console->DropQueue();
  }
  state.EndOfTurn();
}

std::uint64_t LogFollower::dropped_console_lines() const {
  const Impl& state = *impl_;
  return state.stderr_console->dropped_lines() + (state.stdout_console ? state.stdout_console->dropped_lines() : 0);
}

}  // namespace fulldeck::logs
