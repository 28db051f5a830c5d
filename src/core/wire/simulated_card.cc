#include <cerrno>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/environment.h"
#include "fulldeck/simulated_card.h"
#include "wire/simulated_spec.h"
#include "wire/simulated_state.h"
#include "wire/variables.h"

using fulldeck::base::Environment;
using fulldeck::base::SteadyClock;
using fulldeck::base::TimePoint;
namespace wire = fulldeck::wire;

struct fulldeck_simulated_card {
  int index;
  wire::SimulatedSpec spec;
  std::unique_ptr<wire::SimulatedServer> server;
  wire::SimulatedSlot* slot;
};

namespace {

thread_local std::string last_error;

int Fail(int error, std::string message) {
  last_error = std::move(message);
  return -error;
}

// A vendor's runtime reads the visible-device list once when it initializes, and so does this one: programs change the
// variable later.
const Environment& AtFirstUse() {
  static const auto* const environment = new Environment(Environment::OfThisProcess());
  return *environment;
}

const wire::SimulatedCardSpec& CardSpec(const fulldeck_simulated_card* card) {
  return card->spec.cards[static_cast<std::size_t>(card->index)];
}

}  // namespace

extern "C" {

const char* fulldeck_simulated_card_error(void) {
  return last_error.c_str();
}

int fulldeck_simulated_card_count(void) {
  const auto text = Environment::OfThisProcess().Get(wire::kSimulateVariable);
  if (!text || text->empty())
    return Fail(ENODEV, std::string(wire::kSimulateVariable) + " is not set: there are no simulated cards");
  const auto spec = wire::ParseSimulatedSpec(*text);
  if (!spec) return Fail(EINVAL, spec.error().message);
  const auto visible = wire::VisibleSimulatedCards(*spec, AtFirstUse());
  if (!visible) return Fail(EINVAL, visible.error().message);
  return static_cast<int>(visible->size());
}

int fulldeck_simulated_card_open(int index, fulldeck_simulated_card** out) {
  *out = nullptr;
  const Environment environment = Environment::OfThisProcess();
  const auto text = environment.Get(wire::kSimulateVariable);
  if (!text || text->empty())
    return Fail(ENODEV, std::string(wire::kSimulateVariable) + " is not set: there are no simulated cards");
  auto spec = wire::ParseSimulatedSpec(*text);
  if (!spec) return Fail(EINVAL, spec.error().message);
  const auto visible = wire::VisibleSimulatedCards(*spec, AtFirstUse());
  if (!visible) return Fail(EINVAL, visible.error().message);
  if (index < 0 || index >= static_cast<int>(visible->size())) {
    const bool narrowed = visible->size() < spec->cards.size();
    return Fail(ENODEV, "there is no simulated card " + std::to_string(index) + ": " + *text + " has " +
                            std::to_string(spec->cards.size()) +
                            (narrowed ? ", and this process sees " + std::to_string(visible->size()) : ""));
  }
  index = (*visible)[static_cast<std::size_t>(index)];
  auto server = wire::SimulatedServer::OpenToUse(wire::SimulatedServer::PathFor(*spec, environment));
  if (!server) return Fail(EIO, server.error().message);
  auto card = std::make_unique<fulldeck_simulated_card>();
  card->index = index;
  card->spec = std::move(*spec);
  card->server = std::move(*server);
  if ((fulldeck_simulated_card_faults(card.get()) & wire::kFaultDropped) != 0) {
    return Fail(ENODEV, "simulated card " + std::to_string(index) + " has dropped off the bus");
  }
  card->slot = card->server->TakeSlot(index);
  if (card->slot == nullptr) {
    return Fail(EBUSY, "simulated card " + std::to_string(index) + " is open in " +
                           std::to_string(wire::kSimulatedSlots) + " processes, which is all it can count");
  }
  *out = card.release();
  return 0;
}

void fulldeck_simulated_card_close(fulldeck_simulated_card* card) {
  if (card == nullptr) return;
  wire::SimulatedServer::GiveBack(*card->slot);
  delete card;
}

int fulldeck_simulated_card_hold(fulldeck_simulated_card* card, uint64_t bytes) {
  if ((fulldeck_simulated_card_faults(card) & wire::kFaultDropped) != 0) return -ENODEV;
  return card->server->Hold(card->index, *card->slot, bytes, card->spec.memory_bytes) ? 0 : -ENOMEM;
}

void fulldeck_simulated_card_release(fulldeck_simulated_card* card, uint64_t bytes) {
  wire::SimulatedServer::Release(*card->slot, bytes);
}

uint64_t fulldeck_simulated_card_begin(fulldeck_simulated_card* card) {
  const TimePoint now = SteadyClock::Instance().Now();
  wire::SimulatedServer::Begin(*card->slot, now);
  return static_cast<uint64_t>(now.time_since_epoch().count());
}

void fulldeck_simulated_card_end(fulldeck_simulated_card* card, uint64_t begun) {
  const TimePoint begin{fulldeck::base::Duration(static_cast<std::int64_t>(begun))};
  wire::SimulatedServer::End(*card->slot, begin, SteadyClock::Instance().Now());
}

uint32_t fulldeck_simulated_card_faults(const fulldeck_simulated_card* card) {
  return CardSpec(card).faults | card->server->Faults(card->index);
}

double fulldeck_simulated_card_slow_factor(const fulldeck_simulated_card* card) {
  const double running =
      (card->server->Faults(card->index) & wire::kFaultSlow) != 0 ? card->server->SlowFactor(card->index) : 1;
  return CardSpec(card).slow_factor * running;
}

void fulldeck_simulated_card_set_faults(fulldeck_simulated_card* card, uint32_t faults, double slow_factor) {
  card->server->SetFaults(card->index, faults, slow_factor);
}

uint64_t fulldeck_simulated_card_memory(const fulldeck_simulated_card* card) {
  return card->spec.memory_bytes;
}

}  // extern "C"
