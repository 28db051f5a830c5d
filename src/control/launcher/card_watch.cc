#include "launcher/card_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/subprocess.h"
#include "base/text.h"
#include "device/inventory.h"
#include "job/cards/card_holders.h"

namespace fulldeck::launcher {
namespace {

// Process lists count only if their pids belong to this pid namespace: in a container, drivers report the pids of the
// node.
std::optional<std::vector<int>> CertainHolders(const device::Card& card, bool has_pids_of_the_host) {
  if (!card.telemetry.holders) return std::nullopt;
  std::vector<int> pids;
  for (const device::Holder& holder : *card.telemetry.holders) {
    if (card.simulated || has_pids_of_the_host || job::HasNodeOpen(holder.pid, card)) pids.push_back(holder.pid);
  }
  if (pids.empty() && !card.telemetry.holders->empty()) return std::nullopt;
  return pids;
}

// "3 123456 87.5 ,4711,4712 ,0:4711:99:5000 1 1 12 40 0 0": card, time, percent, holders, work (slot, pid, start time,
// nanoseconds), then the fields of the progress; "-" for unknown values.
std::string FormatReading(int card, base::TimePoint at, const device::Card& seen,
                          const diagnosis::CardProgress& progress, bool has_pids_of_the_host) {
  const device::Telemetry& telemetry = seen.telemetry;
  std::string holders = "-";
  if (const auto pids = CertainHolders(seen, has_pids_of_the_host)) {
    holders = ",";
    for (const int pid : *pids) holders += fmt::format("{},", pid);
  }
  std::string work = "-";
  if (telemetry.work) {
    work = ",";
    for (const device::ProcessWork& each : *telemetry.work) {
      work += fmt::format("{}:{}:{}:{},", each.slot, each.pid, each.start_ticks, each.busy_ns);
    }
  }
  return fmt::format("{} {} {} {} {} {:d} {:d} {} {} {} {:d}\n", card, at.time_since_epoch().count(),
                     telemetry.utilization_percent ? fmt::format("{:.3f}", *telemetry.utilization_percent) : "-",
                     holders, work, progress.probes, progress.stepped, progress.steps, progress.collectives,
                     progress.probed_ns, progress.model_on_cpu);
}

std::optional<device::ProcessWork> ParseWork(std::string_view text) {
  const auto fields = base::Split(text, ':');
  if (fields.size() != 4) return std::nullopt;
  const auto slot = base::ParseInteger<int>(fields[0]);
  const auto pid = base::ParseInteger<int>(fields[1]);
  const auto ticks = base::ParseInteger<std::uint64_t>(fields[2]);
  const auto busy = base::ParseInteger<std::uint64_t>(fields[3]);
  if (!slot || !pid || !ticks || !busy) return std::nullopt;
  return device::ProcessWork{*slot, *pid, *ticks, *busy};
}

std::optional<diagnosis::CardReading> ParseReading(std::string_view line) {
  const auto fields = base::Split(line, ' ');
  if (fields.size() != 11) return std::nullopt;
  const auto card = base::ParseInteger<int>(fields[0]);
  const auto at = base::ParseInteger<std::int64_t>(fields[1]);
  const auto steps = base::ParseInteger<std::uint64_t>(fields[7]);
  const auto collectives = base::ParseInteger<std::uint64_t>(fields[8]);
  const auto probed = base::ParseInteger<std::uint64_t>(fields[9]);
  if (!card || !at || !steps || !collectives || !probed) return std::nullopt;
  diagnosis::CardReading reading;
  reading.card = *card;
  reading.at = base::TimePoint(base::Duration(*at));
  reading.percent = base::ParseDecimal(fields[2]);
  reading.progress = {fields[5] == "1", fields[6] == "1", *steps, *collectives, *probed, fields[10] == "1"};
  if (fields[3] != "-") {
    reading.holders.emplace();
    for (const std::string_view pid : base::Split(fields[3], ',')) {
      if (const auto number = base::ParseInteger<int>(pid)) reading.holders->push_back(*number);
    }
  }
  if (fields[4] != "-") {
    reading.work.emplace();
    for (const std::string_view text : base::Split(fields[4], ',')) {
      if (const auto work = ParseWork(text)) reading.work->push_back(*work);
    }
  }
  return reading;
}

bool WriteAll(int pipe, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(pipe, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

[[noreturn]] void WatchForEver(int pipe, int requests, const std::vector<device::Card>& cards,
                               const base::Environment& environment,
                               const std::function<diagnosis::CardProgress(std::size_t)>& progress) {
  const base::Clock& clock = base::SteadyClock::Instance();
  const bool has_pids_of_the_host = job::HasPidsOfTheHost();
  device::InventoryReader reader(
      {.root = base::SystemRoot(), .environment = environment, .timeout = std::chrono::seconds(10)});
  const base::TimePoint began = clock.Now();
  bool requested = false;
  for (;;) {
    // Invariant: progress is read before the card. Work after a step is then never counted as work before it.
    const base::TimePoint at = clock.Now();
    std::vector<diagnosis::CardProgress> so_far;
    for (std::size_t i = 0; i < cards.size(); ++i) so_far.push_back(progress(i));
    const auto inventory = reader.Read();
    if (!inventory) _exit(1);
    std::string text;
    for (const device::Card* seen : inventory->Cards()) {
      for (std::size_t i = 0; i < cards.size(); ++i) {
        if (cards[i].vendor == seen->vendor && cards[i].index == seen->index) {
          text += FormatReading(static_cast<int>(i), at, *seen, so_far[i], has_pids_of_the_host);
        }
      }
    }
    text += requested ? "asked\n" : "round\n";
    if (!WriteAll(pipe, text)) _exit(0);
    const bool fast = inventory->simulated && clock.Now() - began < std::chrono::minutes(1);
    pollfd waiting{requests, POLLIN, 0};
    const int interval = static_cast<int>(fast ? CardWatch::kFastInterval.count() : 1000);
    requested = poll(&waiting, 1, interval) > 0;
    char byte = 0;
    if (requested && read(requests, &byte, 1) <= 0) _exit(0);
  }
}

}  // namespace

base::Result<std::unique_ptr<CardWatch>> CardWatch::Start(
    base::EventLoop& loop, const std::vector<device::Card>& cards, const base::Environment& environment,
    const std::function<diagnosis::CardProgress(std::size_t)>& progress, CardWatchEvents events) {
  auto pipe = base::MakePipe();
  if (!pipe) return pipe.error();
  auto requests = base::MakePipe();
  if (!requests) return requests.error();
  const auto non_blocking = base::SetNonBlocking(pipe->read_end.get());
  if (!non_blocking) return non_blocking.error();
  const pid_t supervisor = getpid();
  const pid_t pid = fork();
  if (pid < 0) return base::ErrnoError("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    setsid();
    requests->write_end.Reset();
    WatchForEver(pipe->write_end.get(), requests->read_end.get(), cards, environment, progress);
  }
  std::unique_ptr<CardWatch> watch(new CardWatch(loop, std::move(events)));
  watch->pid_ = pid;
  watch->pipe_ = std::move(pipe->read_end);
  watch->requests_ = std::move(requests->write_end);
  auto id = loop.WhenReadable(watch->pipe_.get(), [raw = watch.get()] { raw->ReadPipe(); });
  if (!id) return id.error();
  watch->watch_ = *id;
  return watch;
}

CardWatch::~CardWatch() {
  loop_.Remove(watch_);
  if (pid_ <= 0) return;
  // The vendor helper processes have parent-death signals of their own.
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool CardWatch::RequestReading() {
  return pid_ > 0 && requests_.valid() && WriteAll(requests_.get(), "?");
}

void CardWatch::ReadPipe() {
  std::array<char, 4096> chunk;
  const ssize_t got = read(pipe_.get(), chunk.data(), chunk.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    loop_.Remove(watch_);
    return;
  }
  unfinished_.append(chunk.data(), static_cast<std::size_t>(got));
  for (std::size_t end = 0; (end = unfinished_.find('\n')) != std::string::npos; unfinished_.erase(0, end + 1)) {
    Take(std::string_view(unfinished_).substr(0, end));
  }
}

void CardWatch::Take(std::string_view line) {
  if (line == "asked" || line == "round") return events_.round(line == "asked");
  if (const auto reading = ParseReading(line)) events_.reading(*reading);
}

}  // namespace fulldeck::launcher
