#include "device/simulated.h"

#include <cstdio>

#include "wire/simulated_state.h"

namespace fulldeck::device {
namespace {

std::string Serial(const wire::SimulatedKind& kind, std::size_t index) {
  char text[48];
  std::snprintf(text, sizeof text, "SIM-%s-%04zu", kind.name, index);
  return text;
}

class Simulated final : public Vendor {
 public:
  Simulated(wire::SimulatedSpec spec, const base::Environment& environment, const base::Clock& clock)
      : spec_(std::move(spec)), path_(wire::SimulatedServer::PathFor(spec_, environment)), clock_(clock) {}

  const VendorTraits& traits() const override { return *FindVendorTraits(spec_.kind->vendor); }

  std::vector<Source> Sources(const Survey&, const base::Environment&) const override { return {}; }

  VendorReport Report(const Survey&, const std::vector<Answer>&) const override {
    VendorReport report;
    report.vendor = traits().name;
    report.title = std::string(traits().title) + " (simulated)";
    const auto server = wire::SimulatedServer::OpenToWatch(path_);
    if (!server) report.failures.push_back("the simulated cards' state: " + server.error().message);
    for (std::size_t index = 0; index < spec_.cards.size(); ++index) {
      report.cards.push_back(MakeCard(index, server ? server->get() : nullptr));
    }
    return report;
  }

 private:
  Card MakeCard(std::size_t index, const wire::SimulatedServer* server) const {
    Card card;
    card.vendor = traits().name;
    card.kind = traits().kind;
    card.index = static_cast<int>(index);
    card.simulated = true;
    card.model = spec_.kind->model;
    card.serial = Serial(*spec_.kind, index);
    card.memory_total_bytes = spec_.memory_bytes;
    card.torch_type = spec_.kind->name;
    card.torch_module = traits().torch_module;
    card.collective_backend = traits().collective_backend;
    card.sources = {"simulated"};
    if (!spec_.kind->trainable) {
      card.notes.push_back(std::string("For inventory and placement only: torch keeps the device name ") +
                           spec_.kind->name + " for itself, so nothing can be trained on this simulated card.");
    }
    const std::uint32_t faults = spec_.cards[index].faults | (server != nullptr ? server->Faults(card.index) : 0);
    if ((faults & wire::kFaultDropped) != 0) {
      card.present = false;
      card.telemetry.state = "Lost";
      card.notes.push_back("The card has dropped off the bus.");
      return card;
    }
    FillTelemetry(card, faults, server);
    return card;
  }

  void FillTelemetry(Card& card, std::uint32_t faults, const wire::SimulatedServer* server) const {
    Telemetry& now = card.telemetry;
    // Without shared state, no process has ever used these cards: the values really are zero.
    const wire::SimulatedUse use = server != nullptr ? server->Use(card.index, clock_.Now()) : wire::SimulatedUse();
    now.utilization_percent = (faults & wire::kFaultIdle) != 0 ? 0 : use.utilization_percent;
    now.memory_used_bytes = use.bytes_held;
    now.state = *now.utilization_percent > 0 ? "Active" : "Sleep";
    // A card that pretends to be idle shows idle counters, too.
    now.work.emplace();
    for (const wire::SimulatedWork& work : use.work) {
      now.work->push_back({work.slot, work.pid, work.start_ticks, (faults & wire::kFaultIdle) != 0 ? 0 : work.busy_ns});
    }
    now.holders.emplace();
    for (const wire::SimulatedUser& user : use.users) {
      now.holders->push_back({user.pid, std::nullopt, std::nullopt, user.bytes_held});
    }
  }

  const wire::SimulatedSpec spec_;
  const std::string path_;
  const base::Clock& clock_;
};

}  // namespace

std::unique_ptr<Vendor> MakeSimulated(wire::SimulatedSpec spec, const base::Environment& environment,
                                      const base::Clock& clock) {
  return std::make_unique<Simulated>(std::move(spec), environment, clock);
}

}  // namespace fulldeck::device
