// What is known about a card after it was made to work: the deep half of the group "cards". The work itself is done in
// processes of its own (card_probe.py through the user's torch, card_cuda.h through the CUDA driver, card_simulated.h);
// here they are started, watched and understood.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/check.h"

namespace fulldeck::doctor {

struct CardProof {
  enum class Outcome {
    kNotDone,  // `message` says why
    kSound,
    kWrong,    // it computes or remembers other values than the processor
    kRefused,  // an error instead of a result
    kSilent,   // no sign of life: killed
    kDied,     // the process that used it crashed
  };
  Outcome outcome = Outcome::kNotDone;
  std::string message;
  std::string step;  // where it stopped: driver, allocate, copy, compute, pace, memory, busy, free
  std::string way;   // "CUDA driver 13.0", "torch 2.5.1 on gcu:3", …
  std::optional<double> to_card_bytes_per_second;
  std::optional<double> from_card_bytes_per_second;
  std::optional<double> memory_bytes_per_second;  // of the card's own memory
  std::optional<double> pace_seconds;             // for a fixed piece of work
  std::optional<std::uint64_t> memory_proved_bytes;
  std::optional<std::string> uuid;  // as the driver gives it
  std::optional<bool> ecc;          // memory with error correction switched on
  std::optional<std::uint64_t> ecc_uncorrected;
  std::optional<bool> rows_pending;                   // memory rows that wait for a reset to be replaced
  std::optional<bool> rows_failed;                    // no row is left to replace a broken one
  std::optional<double> highest_utilization_percent;  // that its telemetry told while it computed
  bool was_busy = false;                              // long enough for telemetry to see it
};

// One for each card of Inventory::Cards(), in that order: all of them at the same time, cards that are missing or
// hidden left out. Cards that seem slow are measured a second time beside few others, and the second figures count.
std::vector<CardProof> ProveCards(const MachineUnderTest& machine);

// The same, done once: for the same machine, environment and cards the first answer is kept. Any thread.
std::shared_ptr<const std::vector<CardProof>> ProofsOf(const MachineUnderTest& machine);

// A figure of a card that is far from the others'.
struct SlowFigure {
  std::size_t card = 0;  // position in the vector
  std::string what;      // "to_card", "from_card", "memory", "pace"
  double value = 0;      // bytes per second, or seconds
  double median = 0;     // of the other cards
};

// Cards of one model are compared with each other, when at least three gave figures. Simulated ones (their models begin
// with kSimulatedModel) share a processor, and are called slow later. Pure.
inline constexpr double kFarFromTheOthers = 2.0;
inline constexpr double kFarFromTheOthersSimulated = 2.5;
inline constexpr std::string_view kSimulatedModel = "simulated ";
// "nvidia/H200"
std::string ModelOf(const device::Card& card);
std::vector<SlowFigure> FindSlow(const std::vector<std::string>& models, const std::vector<CardProof>& proofs);

// What `fulldeck probe-card REQUEST` does, in a process of its own: proves one card natively and writes lines of JSON
// to descriptor 3. Returns an exit code.
int RunCardProbe(const std::string& request);

}  // namespace fulldeck::doctor
