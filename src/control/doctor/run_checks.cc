#include "doctor/run_checks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "doctor/finding.h"
#include "doctor/finding_json.h"

namespace fulldeck::doctor {
namespace {

using base::Duration;
using base::TimePoint;

constexpr std::size_t kLongestAnswer = std::size_t{4} << 20;
// Limit for a killed process. One that still exists then is blocked in the kernel, perhaps by a dead disk.
constexpr Duration kTimeToDie = std::chrono::milliseconds(500);

TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Finding Unanswered(base::BilingualText evidence) {
  return CannotTell(
      std::move(evidence),
      Bilingual("run it alone with more time: fulldeck doctor --deep; if it happens again, please report it",
                "用 fulldeck doctor --deep 单独再跑一次；若再次出现，请反馈"));
}

// One running check, or a family of them.
struct Running {
  std::vector<std::size_t> positions;  // of their reports
  pid_t pid = -1;
  base::UniqueFd answer;
  std::string text;
  TimePoint started;
  TimePoint deadline;
};

// Writes one line per check.
[[noreturn]] void AnswerAndExit(const std::vector<const Check*>& checks, const MachineUnderTest& machine, int answer,
                                pid_t doctor) {
  // Its descendants must be reachable: its own process group, and it must not outlive the doctor.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != doctor) _exit(0);
  for (const Check* const check : checks) {
    const std::string text = FormatFindings(check->run(machine)) + "\n";
    if (!base::WriteAllTo(answer, text, "the doctor")) _exit(1);
  }
  _exit(0);
}

class Runner {
 public:
  Runner(const MachineUnderTest& machine, std::vector<CheckReport>& reports) : machine_(machine), reports_(reports) {}

  void Run(const std::vector<std::size_t>& positions, std::size_t at_a_time) {
    const std::vector<std::vector<std::size_t>> families = InFamilies(positions);
    std::size_t next = 0;
    while (next < families.size() || !running_.empty()) {
      while (next < families.size() && running_.size() < at_a_time) Start(families[next++]);
      WaitForSome();
    }
  }

 private:
  // Families first: they take longest.
  std::vector<std::vector<std::size_t>> InFamilies(const std::vector<std::size_t>& positions) const {
    std::vector<std::vector<std::size_t>> families;
    for (const std::size_t position : positions) {
      const std::string_view family = reports_[position].check->family;
      if (family.empty()) continue;
      const auto found = std::find_if(families.begin(), families.end(), [&](const std::vector<std::size_t>& members) {
        return reports_[members.front()].check->family == family;
      });
      if (found != families.end()) {
        found->push_back(position);
      } else {
        families.push_back({position});
      }
    }
    for (const std::size_t position : positions) {
      if (reports_[position].check->family.empty()) families.push_back({position});
    }
    return families;
  }

  void Start(const std::vector<std::size_t>& positions) {
    const auto refuse = [&](const base::BilingualText& why) {
      for (const std::size_t position : positions) reports_[position].findings = {Unanswered(why)};
    };
    auto pipe = base::MakePipe();
    if (!pipe) return refuse({pipe.error().message, pipe.error().message});
    std::vector<const Check*> checks;
    Duration limit{};
    for (const std::size_t position : positions) {
      checks.push_back(reports_[position].check);
      limit = std::max(limit, machine_.deep ? checks.back()->deep_limit : checks.back()->limit);
    }
    const pid_t doctor = getpid();
    const pid_t pid = fork();
    if (pid == 0) AnswerAndExit(checks, machine_, pipe->write_end.get(), doctor);
    if (pid < 0) {
      const std::string why = std::strerror(errno);
      return refuse(Bilingual("no process could be started: {}", "无法启动进程：{}", why));
    }
    static_cast<void>(base::SetNonBlocking(pipe->read_end.get()));
    const TimePoint now = Now();
    running_.push_back({positions, pid, std::move(pipe->read_end), "", now, now + limit});
  }

  void WaitForSome() {
    if (running_.empty()) return;
    std::vector<pollfd> polled;
    TimePoint first = running_.front().deadline;
    for (const Running& one : running_) {
      polled.push_back({one.answer.get(), POLLIN, 0});
      first = std::min(first, one.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Now()).count();
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    FULLDECK_CHECK(ready >= 0 || errno == EINTR);
    if (ready < 0) return;
    for (std::size_t i = polled.size(); i-- > 0;) {
      Running& one = running_[i];
      const bool ended = (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && ReadAnswer(one);
      const bool late = !ended && Now() >= one.deadline;
      if (!ended && !late) continue;
      Finish(one, late);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Returns true at the end of the answer.
  static bool ReadAnswer(Running& one) {
    std::array<char, 16384> chunk;
    for (;;) {
      const ssize_t got = read(one.answer.get(), chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno != EAGAIN;
      if (got == 0) return true;
      one.text.append(chunk.data(), static_cast<std::size_t>(got));
      if (one.text.size() > kLongestAnswer) return true;
    }
  }

  void Finish(Running& one, bool late) {
    const Duration took = Now() - one.started;
    reports_[one.positions.front()].took = took;
    if (late) kill(one.pid, SIGKILL);
    // It may have closed its answer and continued, and processes that it started may still exist.
    const int status = Reap(one.pid);
    kill(-one.pid, SIGKILL);
    const std::vector<std::string_view> lines = base::Split(one.text, '\n');
    for (std::size_t i = 0; i < one.positions.size(); ++i) {
      CheckReport& report = reports_[one.positions[i]];
      // A line that ends with a newline is complete, whatever happened to the checks after it.
      auto findings = i + 1 < lines.size() ? ParseFindings(lines[i]) : base::Error{"no answer"};
      if (findings) {
        report.findings = std::move(*findings);
      } else if (late) {
        report.findings = {Unanswered(Bilingual("no answer after {:.1f} s: the check was ended",
                                                "{:.1f} 秒内没有结果：检查被终止", Seconds(took)))};
      } else if (WIFSIGNALED(status)) {
        report.findings = {
            Unanswered(Bilingual("the check itself died of signal {} ({})", "检查程序自身因信号 {} 终止（{}）",
                                 WTERMSIG(status), strsignal(WTERMSIG(status))))};
      } else {
        report.findings = {
            Unanswered(Bilingual("the check itself ended without an answer", "检查程序没有给出结果就结束了"))};
      }
    }
  }

  // Its wait status; that of a killed process if the kernel does not let it end.
  static int Reap(pid_t pid) {
    for (const bool killed : {false, true}) {
      const TimePoint until = Now() + kTimeToDie;
      while (Now() < until) {
        int status = 0;
        const pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return SIGKILL;
        poll(nullptr, 0, 1);
      }
      if (!killed) kill(pid, SIGKILL);
    }
    return SIGKILL;
  }

  const MachineUnderTest& machine_;
  std::vector<CheckReport>& reports_;
  std::vector<Running> running_;
};

}  // namespace

std::vector<CheckReport> RunChecks(std::span<const Check> checks, const MachineUnderTest& machine, int at_a_time) {
  std::vector<CheckReport> reports;
  std::vector<std::size_t> quick;
  std::vector<std::size_t> deep;
  for (const Check& check : checks) {
    if (check.only_deep && !machine.deep) continue;
    (check.only_deep ? deep : quick).push_back(reports.size());
    reports.push_back({&check, {}, {}});
  }
  Runner runner(machine, reports);
  runner.Run(quick, static_cast<std::size_t>(std::max(at_a_time, 1)));
  runner.Run(deep, 1);
  return reports;
}

}  // namespace fulldeck::doctor
