#include "bench/rank_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/text.h"
#include "bench/rank_protocol.h"

namespace fulldeck::bench {
namespace {

using std::chrono::seconds;

constexpr seconds kTimeToEnd(10);     // after the connection has ended: MPI_Finalize, exit of the Python interpreter
constexpr seconds kTimeAfterTerm(3);  // mpirun removes its files
constexpr std::chrono::milliseconds kTimeAfterExit(200);
constexpr seconds kTimeAfterSilence(1);
constexpr off_t kMaxOutput = 16 << 10;
constexpr std::size_t kLinesShown = 6;

std::string DescribeExit(std::optional<int> status) {
  if (!status) return "ended";
  if (WIFSIGNALED(*status)) return fmt::format("was ended by signal {}", WTERMSIG(*status));
  return fmt::format("ended with code {}", WEXITSTATUS(*status));
}

}  // namespace

std::string RankSet::SocketPath(const std::string& folder, const RankCommand& command) {
  return fmt::format("{}/{}-{}", folder, command.name, command.ranks);
}

RankSet::RankSet(base::EventLoop& loop, const bool& interrupted, RankCommand command, std::string folder)
    : loop_(loop),
      interrupted_(interrupted),
      command_(std::move(command)),
      folder_(std::move(folder)),
      output_path_(SocketPath(folder_, command_) + ".output") {}

RankSet::~RankSet() {
  End();
}

RankSet::Started RankSet::Start(base::EventLoop& loop, const bool& interrupted, RankCommand command,
                                const std::string& folder, base::Duration timeout) {
  std::unique_ptr<RankSet> set(new RankSet(loop, interrupted, std::move(command), folder));
  if (auto done = set->Listen(); !done) return {nullptr, std::nullopt, done.error().message};
  if (auto done = set->Spawn(); !done) return {nullptr, std::nullopt, done.error().message};
  const bool in_time =
      set->WaitUntil(timeout, [&] { return set->absent_ || set->failed_ || set->greeted_ == set->command_.ranks; });
  if (set->absent_) return {nullptr, set->absent_, std::nullopt};
  if (!in_time) set->Fail(fmt::format("{} of {} ranks did not come", set->ranks() - set->greeted_, set->ranks()));
  if (set->failed_) return {nullptr, std::nullopt, set->failed_};
  return {std::move(set), std::nullopt, std::nullopt};
}

base::Result<void> RankSet::Listen() {
  const std::string path = SocketPath(folder_, command_);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return base::Error{fmt::format("{} is too long for a socket; set TMPDIR to a shorter path", base::Printable(path))};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  // An earlier set with as many ranks has left its socket.
  unlink(path.c_str());
  listener_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid() || bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_.get(), command_.ranks) != 0) {
    return base::ErrnoError("cannot listen at " + base::Printable(path));
  }
  auto watch = loop_.WhenReadable(listener_.get(), [this] { Accept(); });
  if (!watch) return watch.error();
  listener_watch_ = *watch;
  return {};
}

base::Result<void> RankSet::Spawn() {
  base::UniqueFd output(open(output_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.valid()) return base::ErrnoError("cannot write " + base::Printable(output_path_));
  for (int index = 0; base::SpawnOptions options : command_.processes) {
    options.descriptors = {{STDOUT_FILENO, output.get()}, {STDERR_FILENO, output.get()}};
    options.new_session = true;
    options.parent_death_signal = SIGKILL;
    const auto pid = base::Spawn(options);
    if (!pid) return pid.error();
    const pid_t child = *pid;
    const int process = index++;
    auto watch = loop_.WhenExited(child, [this, child, process](std::optional<int> status) {
      processes_.erase(child);
      if (stopping_) return;
      ended_.push_back({process, status});
      // Its last message may still be in transit.
      FailAfter(kTimeAfterExit, fmt::format("process {} {}", child, DescribeExit(status)));
    });
    if (!watch) return watch.error();
    processes_[child] = *watch;
  }
  return {};
}

void RankSet::Accept() {
  base::UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  auto connection = std::make_unique<Connection>();
  connection->socket = std::move(socket);
  Connection& kept = *connection;
  auto watch = loop_.WhenReadable(kept.socket.get(), [this, &kept] { Read(kept); });
  if (!watch) return Fail(watch.error().message);
  kept.watch = *watch;
  connections_.push_back(std::move(connection));
}

void RankSet::Read(Connection& connection) {
  std::array<char, 65536> chunk;
  const ssize_t got = recv(connection.socket.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0 || connection.received.size() > kLongestLine) {
    loop_.Remove(connection.watch);
    connection.closed = true;
    // The exit status of its process is more informative, if it arrives soon.
    if (connection.rank >= 0 && !absent_) FailAfter(kTimeAfterSilence, fmt::format("rank {} is gone", connection.rank));
    return;
  }
  connection.received.append(chunk.data(), static_cast<std::size_t>(got));
  for (;;) {
    const std::size_t end = connection.received.find('\n');
    if (end == std::string::npos) return;
    const std::string line = connection.received.substr(0, end);
    connection.received.erase(0, end + 1);
    TakeLine(connection, line);
  }
}

void RankSet::TakeLine(Connection& connection, const std::string& line) {
  if (connection.rank < 0) return Greet(connection, line);
  const auto rank = static_cast<std::size_t>(connection.rank);
  if (rank >= answers_.size() || answers_[rank]) return Fail(fmt::format("rank {} spoke out of turn", rank));
  answers_[rank] = line;
}

void RankSet::Greet(Connection& connection, const std::string& line) {
  const auto greeting = ReadGreeting(line);
  if (!greeting) return Fail(greeting.error().message);
  if (greeting->absent) {
    absent_ = greeting->absent;
    return;
  }
  const bool taken = std::any_of(connections_.begin(), connections_.end(),
                                 [&](const auto& other) { return other->rank == greeting->rank; });
  if (greeting->rank < 0 || greeting->rank >= command_.ranks || taken) {
    return Fail(fmt::format("a rank {} of {} came twice or is none", greeting->rank, command_.ranks));
  }
  connection.rank = greeting->rank;
  if (greeting->rank == 0) about_ = greeting->about;
  ++greeted_;
}

bool RankSet::WaitUntil(base::Duration timeout, const std::function<bool()>& condition) {
  const base::TimePoint deadline = loop_.clock().Now() + timeout;
  while (!condition()) {
    if (interrupted_) {
      Fail("interrupted");
      return true;
    }
    const base::TimePoint now = loop_.clock().Now();
    if (now >= deadline) return false;
    loop_.RunOnce(deadline - now);
  }
  return true;
}

base::Result<std::vector<std::optional<std::string>>> RankSet::Request(
    const std::string& line, base::Duration timeout, const std::function<bool(const std::string&)>& final) {
  if (failed_) return base::Error{*failed_};
  answers_.assign(static_cast<std::size_t>(command_.ranks), std::nullopt);
  const std::string text = line + "\n";
  for (const auto& connection : connections_) {
    // A command is short and the rank waits for it, so it fits into the socket buffer.
    const ssize_t sent = send(connection->socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(text.size())) Fail(fmt::format("rank {} does not listen", connection->rank));
  }
  const auto answered = [](const auto& answer) { return answer.has_value(); };
  const bool in_time = WaitUntil(timeout, [&] {
    return failed_ || std::all_of(answers_.begin(), answers_.end(), answered) ||
           std::any_of(answers_.begin(), answers_.end(), [&](const auto& answer) { return answer && final(*answer); });
  });
  if (!in_time) {
    const auto missing = std::count(answers_.begin(), answers_.end(), std::nullopt);
    Fail(fmt::format("{} of {} ranks gave no answer in {} s", missing, command_.ranks,
                     std::chrono::duration_cast<seconds>(timeout).count()));
  }
  if (failed_) return base::Error{*failed_};
  in_step_ = std::all_of(answers_.begin(), answers_.end(), answered);
  return answers_;
}

void RankSet::Fail(std::string text) {
  if (!failed_) failed_ = std::move(text) + EndOfOutput();
}

void RankSet::FailAfter(base::Duration delay, std::string text) {
  timers_.push_back(loop_.After(delay, [this, text = std::move(text)] { Fail(text); }));
}

std::string RankSet::EndOfOutput() const {
  const base::UniqueFd file(open(output_path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return "";
  const off_t size = lseek(file.get(), 0, SEEK_END);
  std::string output(static_cast<std::size_t>(std::min(size, kMaxOutput)), '\0');
  const ssize_t got = pread(file.get(), output.data(), output.size(), std::max<off_t>(0, size - kMaxOutput));
  output.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  std::vector<std::string> lines;
  for (const std::string_view line : base::Split(base::Trim(output), '\n')) {
    if (!base::Trim(line).empty()) lines.push_back("  | " + base::Printable(line.substr(0, 300)));
  }
  if (lines.size() > kLinesShown) lines.erase(lines.begin(), lines.end() - kLinesShown);
  return lines.empty() ? "" : "; it said:\n" + base::Join(lines, "\n");
}

void RankSet::End() {
  const bool will_end = !failed_ && !absent_ && in_step_;
  stopping_ = true;
  for (const base::EventLoop::Id timer : timers_) loop_.Remove(timer);
  for (const auto& connection : connections_) {
    if (!connection->closed) loop_.Remove(connection->watch);
  }
  connections_.clear();
  loop_.Remove(listener_watch_);
  listener_.Reset();
  const auto gone_within = [&](base::Duration timeout) {
    const base::TimePoint deadline = loop_.clock().Now() + timeout;
    while (!processes_.empty() && loop_.clock().Now() < deadline) loop_.RunOnce(deadline - loop_.clock().Now());
    return processes_.empty();
  };
  const auto signal_all = [&](int number) {
    for (const auto& [pid, watch] : processes_) kill(-pid, number);
    // A stopped process must run to handle the signal.
    for (const auto& [pid, watch] : processes_) kill(-pid, SIGCONT);
  };
  if (will_end && gone_within(kTimeToEnd)) return;
  signal_all(SIGTERM);
  if (gone_within(kTimeAfterTerm)) return;
  signal_all(SIGKILL);
  if (gone_within(kTimeAfterTerm)) return;
  for (const auto& [pid, watch] : processes_) loop_.Remove(watch);
}

}  // namespace fulldeck::bench
