#include "doctor/cards/card_simulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "doctor/cards/card_kernels.h"
#include "doctor/collectives/proof_lines.h"
#include "doctor/step_times.h"
#include "fulldeck/simulated_card.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint32_t kThreads = 4096;
constexpr std::uint32_t kSteps = 64;

struct Answer {
  std::vector<Computed> values;
  std::string refused;
};

base::TimePoint Now() {
  return base::SteadyClock::Instance().Now();
}

// One operation on the card, including the card's faults, as in torch's simulated device.
Answer ComputeOn(fulldeck_simulated_card* card) {
  Answer answer;
  const base::TimePoint begin = Now();
  const std::uint64_t begun = fulldeck_simulated_card_begin(card);
  std::uint32_t faults = fulldeck_simulated_card_faults(card);
  while ((faults & FULLDECK_SIMULATED_HUNG) != 0 && (faults & FULLDECK_SIMULATED_DROPPED) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    faults = fulldeck_simulated_card_faults(card);
  }
  if ((faults & FULLDECK_SIMULATED_DROPPED) != 0) {
    answer.refused = "the simulated card has dropped off the bus";
  } else if ((faults & FULLDECK_SIMULATED_BROKEN) != 0) {
    answer.refused = "the simulated card is broken and refuses to compute";
  } else {
    for (std::uint32_t i = 0; i < kThreads; ++i) answer.values.push_back(ComputedBy(i, kSteps));
    if ((faults & FULLDECK_SIMULATED_LYING) != 0) answer.values.front().real += 1;
    if ((faults & FULLDECK_SIMULATED_SLOW) != 0) {
      const double factor = std::max(1.0, fulldeck_simulated_card_slow_factor(card));
      const base::Duration took = Now() - begin;
      std::this_thread::sleep_for(
          std::chrono::duration<double, std::nano>((factor - 1) * static_cast<double>(took.count())));
    }
  }
  fulldeck_simulated_card_end(card, begun);
  return answer;
}

}  // namespace

int ProveSimulatedCard(int number, int index, double busy_seconds) {
  ProofLines lines(number,
                   "the simulated card's own interface (no torch here has it: the CPU computes and is compared with "
                   "itself, so only injected faults show)");
  lines.Step("allocate");
  fulldeck_simulated_card* card = nullptr;
  if (fulldeck_simulated_card_open(index, &card) != 0) {
    lines.Refused(fulldeck_simulated_card_error());
    return 1;
  }
  const std::uint64_t bytes = std::min<std::uint64_t>(fulldeck_simulated_card_memory(card) / 2, 64U << 20);
  if (const int error = fulldeck_simulated_card_hold(card, bytes); error != 0) {
    lines.Refused(error == -ENOMEM
                      ? fmt::format("{} of its memory cannot be had: out of memory", base::FormatByteSize(bytes))
                      : "the simulated card has dropped off the bus");
    return 1;
  }
  lines.Step("compute");
  StepTimes times;
  while (!times.Enough()) {
    times.Begin();
    const Answer answer = ComputeOn(card);
    times.End();
    if (!answer.refused.empty()) {
      lines.Refused(answer.refused);
      return 1;
    }
    for (std::uint32_t i = 0; i < kThreads; ++i) {
      const Computed right = ComputedBy(i, kSteps);
      const Computed& got = answer.values[i];
      if (got.whole != right.whole || got.real != right.real) {
        lines.Wrong(fmt::format("number {} of {} is {} and not {}", i, kThreads, got.real, right.real));
        return 1;
      }
    }
  }
  lines.Step("busy");
  const base::TimePoint end =
      Now() + std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(busy_seconds));
  while (Now() < end) {
    if (!ComputeOn(card).refused.empty()) break;
  }
  lines.Step("free");
  fulldeck_simulated_card_release(card, bytes);
  fulldeck_simulated_card_close(card);
  lines.Sound(ProofLines::Json::object({{"pace", times.Typical()}}));
  return 0;
}

}  // namespace fulldeck::doctor
