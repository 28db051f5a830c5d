#include "launcher/card_watch.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "base/subprocess.h"
#include "base/text.h"
#include "device/inventory.h"

namespace fulldeck::launcher {
namespace {

// "3 87.5 4711,4712": card, per cent, holders; "-" for what cannot be told.
std::string FormatReading(int card, const device::Telemetry& telemetry) {
  std::string holders = "-";
  if (telemetry.holders) {
    std::vector<std::string> pids;
    for (const device::Holder& holder : *telemetry.holders) pids.push_back(std::to_string(holder.pid));
    holders = "," + base::Join(pids, ",");
  }
  return fmt::format("{} {} {}\n", card,
                     telemetry.utilisation_percent ? fmt::format("{:.3f}", *telemetry.utilisation_percent) : "-",
                     holders);
}

std::optional<CardReading> ParseReading(std::string_view line) {
  const auto fields = base::Split(line, ' ');
  if (fields.size() != 3) return std::nullopt;
  const auto card = base::ParseInteger<int>(fields[0]);
  if (!card) return std::nullopt;
  CardReading reading{*card, base::ParseDecimal(fields[1]), std::nullopt};
  if (fields[2] != "-") {
    reading.holders.emplace();
    for (const std::string_view pid : base::Split(fields[2], ',')) {
      if (const auto number = base::ParseInteger<int>(pid)) reading.holders->push_back(*number);
    }
  }
  return reading;
}

[[noreturn]] void WatchForEver(int pipe, const std::vector<device::Card>& cards, const base::Environment& environment) {
  device::InventoryReader reader(
      {.root = base::SystemRoot(), .environment = environment, .patience = std::chrono::seconds(10)});
  for (;;) {
    const auto inventory = reader.Read();
    if (!inventory) _exit(1);
    std::string text;
    for (const device::Card* seen : inventory->Cards()) {
      for (std::size_t i = 0; i < cards.size(); ++i) {
        if (cards[i].vendor == seen->vendor && cards[i].index == seen->index) {
          text += FormatReading(static_cast<int>(i), seen->telemetry);
        }
      }
    }
    if (write(pipe, text.data(), text.size()) < 0) _exit(0);
    const timespec second{1, 0};
    nanosleep(&second, nullptr);
  }
}

}  // namespace

base::Result<std::unique_ptr<CardWatch>> CardWatch::Start(base::EventLoop& loop, const std::vector<device::Card>& cards,
                                                          const base::Environment& environment,
                                                          std::function<void(const CardReading&)> on_reading) {
  auto pipe = base::MakePipe();
  if (!pipe) return pipe.error();
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
    WatchForEver(pipe->write_end.get(), cards, environment);
  }
  std::unique_ptr<CardWatch> watch(new CardWatch(loop, std::move(on_reading)));
  watch->pid_ = pid;
  watch->pipe_ = std::move(pipe->read_end);
  auto id = loop.WhenReadable(watch->pipe_.get(), [raw = watch.get()] { raw->ReadPipe(); });
  if (!id) return id.error();
  watch->watch_ = *id;
  return watch;
}

CardWatch::~CardWatch() {
  loop_.Remove(watch_);
  if (pid_ <= 0) return;
  // Its vendor helpers have parent-death signals of their own.
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
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
    if (const auto reading = ParseReading(std::string_view(unfinished_).substr(0, end))) on_reading_(*reading);
  }
}

}  // namespace fulldeck::launcher
