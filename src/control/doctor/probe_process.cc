#include "doctor/probe_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/event_loop.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace fulldeck::doctor {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{4} << 20;
constexpr std::size_t kKeptOutput = 4096;
constexpr base::Duration kTick = std::chrono::milliseconds(250);
// A process that is blocked in the kernel may not end at all.
constexpr base::Duration kKilledTimeout = std::chrono::milliseconds(500);

class Running {
 public:
  Running(base::EventLoop& loop, ProbeTimeouts timeout, ProbeResult& result, const std::function<void()>& ended)
      : loop_(loop), timeout_(timeout), result_(result), ended_(ended) {}

  ~Running() {
    Unwatch();
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  bool Start(const ProbeProcess& process) {
    auto answer = base::MakePipe();
    auto output = base::MakePipe();
    if (!answer || !output) return Refuse((answer ? output.error() : answer.error()).message);
    base::SpawnOptions options;
    options.arguments = process.arguments;
    options.environment.emplace();
    for (const auto& [name, value] : process.environment.all()) options.environment->push_back(name + "=" + value);
    options.descriptors = {
        {1, output->write_end.get()}, {2, output->write_end.get()}, {kProbeAnswerFd, answer->write_end.get()}};
    options.parent_death_signal = SIGKILL;
    const auto pid = base::Spawn(options);
    if (!pid) return Refuse(pid.error().message);
    pid_ = *pid;
    answer_ = std::move(answer->read_end);
    output_ = std::move(output->read_end);
    if (!base::SetNonBlocking(answer_.get()) || !base::SetNonBlocking(output_.get()))
      return Refuse("its pipes cannot be read");
    auto answers = loop_.WhenReadable(answer_.get(), [this] { ReadAnswer(); });
    auto printed = loop_.WhenReadable(output_.get(), [this] { ReadOutput(); });
    auto exits = loop_.WhenExited(pid_, [this](std::optional<int> status) { Exited(status); });
    if (answers) watches_[0] = *answers;
    if (printed) watches_[1] = *printed;
    if (exits) watches_[2] = *exits;
    if (!answers || !printed || !exits) return Refuse("it cannot be waited for");
    ExpectLife(timeout_.to_start);
    return true;
  }

 private:
  bool Refuse(std::string why) {
    result_.not_started = std::move(why);
    return false;
  }

  void ExpectLife(base::Duration within) {
    loop_.Remove(watches_[3]);
    watches_[3] = loop_.After(within, [this] { GiveUp(); });
  }

  void ReadAnswer() {
    std::array<char, 8192> chunk;
    for (;;) {
      const ssize_t got = read(answer_.get(), chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0 || received_ + static_cast<std::size_t>(got) > kLongestAnswer) {
        loop_.Remove(watches_[0]);
        return;
      }
      received_ += static_cast<std::size_t>(got);
      for (const char byte : std::string_view(chunk.data(), static_cast<std::size_t>(got))) {
        if (byte != '\n') {
          line_ += byte;
          continue;
        }
        result_.lines.push_back(std::move(line_));
        line_.clear();
        if (pid_ > 0) ExpectLife(timeout_.from_then);
      }
    }
  }

  void ReadOutput() {
    std::array<char, 8192> chunk;
    for (;;) {
      const ssize_t got = read(output_.get(), chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) {
        loop_.Remove(watches_[1]);
        return;
      }
      result_.output.append(chunk.data(), static_cast<std::size_t>(got));
      if (result_.output.size() > 2 * kKeptOutput) result_.output.erase(0, result_.output.size() - kKeptOutput);
    }
  }

  void GiveUp() {
    if (killed_) return End();  // not even SIGKILL ended it
    // This process itself may have been late, so read pending output first.
    const std::size_t before = result_.lines.size();
    ReadAnswer();
    if (result_.lines.size() != before) return;
    result_.silent = true;
    killed_ = true;
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    watches_[3] = loop_.After(kKilledTimeout, [this] { GiveUp(); });
  }

  void Exited(std::optional<int> status) {
    result_.wait_status = status;
    // Also kill the processes that it started.
    kill(-pid_, SIGKILL);
    End();
  }

  void End() {
    pid_ = 0;
    ReadAnswer();
    ReadOutput();
    Unwatch();
    ended_();
  }

  void Unwatch() {
    for (const base::EventLoop::Id id : watches_) loop_.Remove(id);
  }

  base::EventLoop& loop_;
  const ProbeTimeouts timeout_;
  ProbeResult& result_;
  const std::function<void()>& ended_;
  pid_t pid_ = 0;
  base::UniqueFd answer_;
  base::UniqueFd output_;
  std::array<base::EventLoop::Id, 4> watches_{};  // answer, output, exit, heartbeat
  std::string line_;
  std::size_t received_ = 0;
  bool killed_ = false;
};

}  // namespace

std::string ProbeResult::DescribeEnd(base::Duration timeout) const {
  if (!not_started.empty()) return "could not be started: " + not_started;
  if (silent) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", std::chrono::duration<double>(timeout).count());
    return std::string("did not answer within ") + seconds + " s and was stopped";
  }
  if (!wait_status) return "was lost";
  if (WIFSIGNALED(*wait_status)) {
    const int number = WTERMSIG(*wait_status);
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "ended with code " + std::to_string(WEXITSTATUS(*wait_status));
}

std::string ProbeResult::LastLine() const {
  const std::string_view text = base::Trim(output);
  const auto line = text.rfind('\n');
  return base::Printable(base::Trim(line == std::string_view::npos ? text : text.substr(line + 1)).substr(0, 400));
}

std::vector<ProbeResult> RunProbes(const std::vector<ProbeProcess>& processes, ProbeTimeouts timeout,
                                   const std::function<void(const std::vector<ProbeResult>&)>& each_quarter_second) {
  std::vector<ProbeResult> results(processes.size());
  base::EventLoop loop;
  std::size_t left = 0;
  const std::function<void()> ended = [&] { --left; };
  std::vector<std::unique_ptr<Running>> running;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    running.push_back(std::make_unique<Running>(loop, timeout, results[i], ended));
    if (running.back()->Start(processes[i])) {
      ++left;
    } else {
      running.pop_back();
    }
  }
  base::TimePoint next_tick = loop.clock().Now() + kTick;
  while (left > 0) {
    loop.RunOnce(std::max(base::Duration::zero(), next_tick - loop.clock().Now()));
    if (loop.clock().Now() < next_tick) continue;
    if (each_quarter_second) each_quarter_second(results);
    next_tick = loop.clock().Now() + kTick;
  }
  return results;
}

}  // namespace fulldeck::doctor
