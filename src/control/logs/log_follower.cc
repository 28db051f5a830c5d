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
constexpr int kChunksInATurn = 64;  // whatever the clock says
// Ranks that write many small lines would wake the launcher for each of them.
constexpr base::Duration kBetweenNotices = milliseconds(10);
constexpr base::Duration kLookAtUnwatched = milliseconds(100);
constexpr base::Duration kLookAtUnfinished = milliseconds(100);

}  // namespace

struct LogFollower::State {
  struct Entry {
    Entry(base::UniqueFd fd, FollowedStream stream, FollowedFile::Destinations to)
        : file(std::move(fd), std::move(stream), to) {}
    FollowedFile file;
    int watch = -1;
    bool waits_for_reading = false;
  };
  using Timer = base::EventLoop::Id;

  State(base::EventLoop& the_loop, LogFollowerOptions the_options);
  ~State();

  void WatchNotices();
  void ReadNotices();
  void Watch(Entry& entry, const std::string& path);
  void Ready(Entry& entry);
  void AllReady(bool unwatched_only);
  void Turn();
  void AskForTurn();
  void ReadToTheEnd(base::TimePoint deadline);
  void Forget();
  void EndOfTurn();
  void Arm(Timer& timer, bool wanted, base::Duration delay, void (State::*action)());
  void LookAtUnwatched();
  void LookAtUnfinished();
  void TellTroubles();
  void Tell();
  void Say(std::string_view line);
  Console* ConsoleOf(int console_fd);
  AppendedLog* FilteredLog(const FollowedStream& stream);

  base::EventLoop& loop;
  LogFollowerOptions options;
  std::unique_ptr<Console> stderr_console;
  std::unique_ptr<Console> stdout_console;  // null when stderr_console serves both
  std::unique_ptr<AppendedLog> merged;
  std::map<std::string, std::unique_ptr<AppendedLog>> filtered;
  std::vector<std::unique_ptr<Entry>> entries;
  std::multimap<int, Entry*> by_watch;  // one file may be followed twice, and has one watch
  std::deque<Entry*> ready;
  std::vector<char> buffer;

  base::UniqueFd inotify;
  int inotify_error = 0;
  Timer notices = 0;  // the watch on inotify, or 0 while it rests
  Timer notices_rest = 0;
  Timer next_turn = 0;  // set while files wait for their turn
  Timer unwatched_timer = 0;
  Timer unfinished_timer = 0;
  Timer retry_timer = 0;
  bool said_unwatched = false;
  bool has_unwatched = false;

  std::vector<std::string> complaints;
  bool telling = false;
};

LogFollower::State::State(base::EventLoop& the_loop, LogFollowerOptions the_options)
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
  AskForTurn();
  WatchNotices();
}

LogFollower::State::~State() {
  for (const Timer id : {notices, notices_rest, next_turn, unwatched_timer, unfinished_timer, retry_timer}) {
    if (id != 0) loop.Remove(id);
  }
}

void LogFollower::State::WatchNotices() {
  notices_rest = 0;
  if (!inotify.valid()) return;
  const auto watch = loop.WhenReadable(inotify.get(), [this] { ReadNotices(); });
  CHECK(watch.ok());
  notices = *watch;
}

void LogFollower::State::ReadNotices() {
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
      if ((event.mask & IN_ATTRIB) != 0) found->second->file.LookWhetherDeleted();
    }
  }
  loop.Remove(notices);
  notices = 0;
  notices_rest = loop.After(kBetweenNotices, [this] { WatchNotices(); });
  Turn();
}

void LogFollower::State::Watch(Entry& entry, const std::string& path) {
  entry.watch = inotify.valid() ? inotify_add_watch(inotify.get(), path.c_str(), IN_MODIFY | IN_ATTRIB) : -1;
  if (entry.watch >= 0) {
    by_watch.emplace(entry.watch, &entry);
    return;
  }
  const int error = inotify.valid() ? errno : inotify_error;
  has_unwatched = true;
  if (std::exchange(said_unwatched, true) || !options.inotify) return;
  complaints.push_back(
      "the kernel has no inotify watch left for " + path + " (" + std::strerror(error) +
      "); such files are looked at every 100 ms. To change that, raise fs.inotify.max_user_watches and "
      "fs.inotify.max_user_instances.");
}

void LogFollower::State::Ready(Entry& entry) {
  if (std::exchange(entry.waits_for_reading, true)) return;
  ready.push_back(&entry);
}

void LogFollower::State::AllReady(bool unwatched_only) {
  for (const auto& entry : entries) {
    if (!unwatched_only || entry->watch < 0) Ready(*entry);
  }
}

void LogFollower::State::Turn() {
  base::TimePoint now = loop.clock().Now();
  const base::TimePoint deadline = now + kTurn;
  for (int chunk = 0; chunk < kChunksInATurn && !ready.empty() && now < deadline; ++chunk) {
    Entry& entry = *ready.front();
    ready.pop_front();
    entry.waits_for_reading = false;
    if (entry.file.ReadSome(buffer, kChunk, now)) Ready(entry);
    now = loop.clock().Now();
  }
  if (!ready.empty()) AskForTurn();
  EndOfTurn();
}

void LogFollower::State::AskForTurn() {
  if (next_turn != 0) return;
  next_turn = loop.After(base::Duration(0), [this] {
    next_turn = 0;
    Turn();
  });
}

void LogFollower::State::EndOfTurn() {
  stderr_console->Flush();
  if (stdout_console) stdout_console->Flush();
  TellTroubles();
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
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry->file.SomethingWaits(); });
  Arm(unfinished_timer, waits, kLookAtUnfinished, &State::LookAtUnfinished);
  Arm(unwatched_timer, has_unwatched, kLookAtUnwatched, &State::LookAtUnwatched);
  Arm(retry_timer, failing, AppendedLog::kRetryAfter, &State::EndOfTurn);
  Tell();
}

void LogFollower::State::Arm(Timer& timer, bool wanted, base::Duration delay, void (State::*action)()) {
  if (!wanted || timer != 0) return;
  timer = loop.After(delay, [this, &timer, action] {
    timer = 0;
    (this->*action)();
  });
}

void LogFollower::State::LookAtUnwatched() {
  AllReady(true);
  Turn();
}

void LogFollower::State::LookAtUnfinished() {
  const base::TimePoint now = loop.clock().Now();
  for (const auto& entry : entries) entry->file.ShowWhatWaits(now);
  EndOfTurn();
}

void LogFollower::State::TellTroubles() {
  const auto told = [this](Console* console, const char* name) {
    const std::string trouble = console == nullptr ? std::string() : console->TakeTrouble();
    if (trouble.empty() || !merged) return;
    merged->PutLine({},
                    std::string("fulldeck: ") + name + " cannot be written any more (" + trouble +
                        "); the run goes on, and nothing is shown there",
                    {});
  };
  told(stderr_console.get(), stdout_console ? "standard error" : "standard output and error");
  told(stdout_console.get(), "standard output");
}

void LogFollower::State::Tell() {
  const auto take = [this](std::string complaint) {
    if (!complaint.empty()) complaints.push_back(std::move(complaint));
  };
  if (merged) take(merged->TakeComplaint());
  for (const auto& entry : filtered) take(entry.second->TakeComplaint());
  for (const auto& entry : entries) take(entry->file.TakeComplaint());
  // `complain` may call Say, which comes here again: the outer call goes on with what is new.
  if (std::exchange(telling, true)) return;
  while (!complaints.empty()) {
    const std::string complaint = std::move(complaints.front());
    complaints.erase(complaints.begin());
    if (options.complain) options.complain(complaint);
  }
  telling = false;
}

void LogFollower::State::Say(std::string_view line) {
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  for (;;) {
    const std::size_t newline = line.find('\n');
    std::string_view one = line.substr(0, newline);
    do {
      const std::string_view piece = one.substr(0, LineSplitter::kLongestLine);
      one.remove_prefix(piece.size());
      const std::string_view mark = one.empty() ? std::string_view() : kLineGoesOn;
      if (merged) merged->PutLine({}, piece, mark);
      stderr_console->PutOurLine(piece);
    } while (!one.empty());
    if (newline == std::string_view::npos) break;
    line.remove_prefix(newline + 1);
  }
  EndOfTurn();
}

Console* LogFollower::State::ConsoleOf(int console_fd) {
  if (console_fd != 1 && console_fd != 2) return nullptr;
  Console* console = console_fd == 1 && stdout_console ? stdout_console.get() : stderr_console.get();
  return console->on() ? console : nullptr;
}

AppendedLog* LogFollower::State::FilteredLog(const FollowedStream& stream) {
  if (stream.filtered_path.empty() || stream.filters.empty()) return nullptr;
  auto& log = filtered[stream.filtered_path];
  if (!log) log = std::make_unique<AppendedLog>(stream.filtered_path, loop.clock());
  return log.get();
}

void LogFollower::State::ReadToTheEnd(base::TimePoint deadline) {
  struct Rest {
    FollowedFile* file;
    std::uint64_t end;
  };
  std::deque<Rest> rests;
  for (const auto& entry : entries) {
    // A file that was cut is set back to its start by a read that finds nothing.
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

void LogFollower::State::Forget() {
  for (const auto& entry : by_watch) inotify_rm_watch(inotify.get(), entry.first);
  by_watch.clear();
  ready.clear();
  for (const auto& entry : entries) entry->file.Finish();
  Tell();
  entries.clear();
  has_unwatched = false;
}

LogFollower::LogFollower(base::EventLoop& loop, LogFollowerOptions options)
    : state_(std::make_unique<State>(loop, std::move(options))) {}

LogFollower::~LogFollower() = default;

base::Result<void> LogFollower::Follow(FollowedStream stream) {
  auto file = FollowedFile::Open(stream.path);
  if (!file) return file.error();
  FollowedFile::Destinations to;
  to.console = state_->ConsoleOf(stream.console_fd);
  to.merged = stream.merged ? state_->merged.get() : nullptr;
  to.filtered = state_->FilteredLog(stream);
  to.colour = to.console != nullptr && to.console->is_terminal() && state_->options.colour;
  if (to.console == nullptr && to.merged == nullptr && to.filtered == nullptr) return {};
  const std::string path = stream.path;
  state_->entries.push_back(std::make_unique<State::Entry>(std::move(*file), std::move(stream), to));
  State::Entry& entry = *state_->entries.back();
  state_->Watch(entry, path);
  state_->Ready(entry);
  state_->AskForTurn();
  return {};
}

void LogFollower::Say(std::string_view line) {
  state_->Say(line);
}

void LogFollower::ShowProgress(std::string_view line) {
  state_->stderr_console->SetProgress(line);
  state_->stderr_console->Flush();
}

void LogFollower::Drain(base::Duration patience) {
  State& state = *state_;
  const auto& clock = base::SteadyClock::Instance();
  const base::TimePoint deadline = clock.Now() + patience;
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
  const State& state = *state_;
  return state.stderr_console->dropped_lines() + (state.stdout_console ? state.stdout_console->dropped_lines() : 0);
}

}  // namespace fulldeck::logs
