// Results of making a card work: the deep half of the group "cards". The work is done in processes of their own
// (card_probe.py through the user's torch, card_cuda.h through the CUDA driver, card_simulated.h); this file starts and
// watches them and interprets their output.
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
    kNotDone,  // `message` gives the reason
    kSound,
    kWrong,    // it computes or stores different values than the CPU
    kRefused,  // an error instead of a result
    kSilent,   // unresponsive: killed
    kDied,     // the process that used it crashed
  };
  Outcome outcome = Outcome::kNotDone;
  std::string message;
  std::string step;  // the step at which it stopped: driver, allocate, copy, compute, pace, memory, busy, free
  std::string way;   // "CUDA driver 13.0", "torch 2.5.1 on gcu:3", …
  std::optional<double> to_card_bytes_per_second;
  std::optional<double> from_card_bytes_per_second;
  std::optional<double> memory_bytes_per_second;  // of the card's own memory
  std::optional<double> pace_seconds;             // for a fixed amount of work
  std::optional<std::uint64_t> memory_proved_bytes;
  std::optional<std::string> uuid;  // as reported by the driver
  std::optional<bool> ecc;          // memory with error correction enabled
  std::optional<std::uint64_t> ecc_uncorrected;
  std::optional<bool> rows_pending;                   // memory rows that are replaced at the next reset
  std::optional<bool> rows_failed;                    // no spare row is left to replace a faulty one
  std::optional<double> highest_utilization_percent;  // highest value that its telemetry reported while it computed
  bool was_busy = false;                              // long enough for telemetry to show it
};

// One per card of Inventory::Cards(), in that order; missing or hidden cards are skipped. All are probed at the same
// time. Cards that seem slow are measured a second time next to only a few others, and the second measurements count.
std::vector<CardProof> ProveCards(const MachineUnderTest& machine);

// The same, cached: for the same machine, environment and cards the first result is returned. Thread safe.
std::shared_ptr<const std::vector<CardProof>> ProofsOf(const MachineUnderTest& machine);

// A measurement of a card that is far from the others'.
struct SlowFigure {
  std::size_t card = 0;  // index in the vector
  std::string what;      // "to_card", "from_card", "memory", "pace"
  double value = 0;      // bytes per second, or seconds
  double median = 0;     // of the other cards
};

// Compares the cards of one model if at least three have measurements. Simulated ones (their models begin with
// kSimulatedModel) share the CPU, so their threshold is higher. Pure.
inline constexpr double kFarFromTheOthers = 2.0;
inline constexpr double kFarFromTheOthersSimulated = 2.5;
inline constexpr std::string_view kSimulatedModel = "simulated ";
// "nvidia/H200"
std::string ModelOf(const device::Card& card);
std::vector<SlowFigure> FindSlow(const std::vector<std::string>& models, const std::vector<CardProof>& proofs);

// Implements `fulldeck probe-card REQUEST` in a process of its own: probes one card natively and writes lines of JSON
// to descriptor 3. Returns an exit code.
int RunCardProbe(const std::string& request);

}  // namespace fulldeck::doctor
