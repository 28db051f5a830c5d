// Expected verdicts of the checks of the group "cards". card_checks_test.cc tests what each fault of a card looks like
// when the card is used; here an unused card represents them, which takes no time.
#include <filesystem>

#include "doctor/machine/fake_machine_for_test.h"

namespace fulldeck::doctor {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// As many as the fake has ranks, all healthy.
void EightCards(FakeMachine& fake) {
  for (int index = 0; index < 8; ++index) {
    device::Card& card = fake.AddCard(index);
    card.model = "S60";
    card.serial = "A0" + std::to_string(index);
    card.torch_type = "gcu";
    card.torch_device = "gcu:" + std::to_string(index);
    card.memory_total_bytes = 48 * kGiB;
    card.telemetry.temperature_celsius = 40;
    card.telemetry.utilization_percent = 0;
    card.telemetry.memory_used_bytes = kGiB / 10;
    card.telemetry.state = "OK";
  }
}

device::Card& CardOf(FakeMachine& fake, std::size_t index) {
  return fake.machine.inventory.vendors.front().cards[index];
}

void HideAll(FakeMachine& fake) {
  EightCards(fake);
  for (std::size_t i = 0; i < 8; ++i) CardOf(fake, i).visible = false;
  fake.machine.inventory.vendors.front().visibility = "TOPS_VISIBLE_DEVICES=";
  fake.machine.deep = true;
}

// Three simulated cards, used through their own interface.
void Simulated(FakeMachine& fake) {
  fake.machine.environment.Set("FULLDECK_SIMULATE", "gcu:3");
  fake.machine.environment.Set("FULLDECK_SIMULATE_DIR", fake.tree.string() + "/cards");
  fake.machine.inventory = *device::InventoryReader({fake.machine.root, fake.machine.environment}).Read();
  fake.machine.python.clear();
  fake.machine.program = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";
  fake.machine.deep = true;
}

// One NVIDIA card whose driver and management library are fakes.
void NvidiaCard(FakeMachine& fake) {
  EightCards(fake);
  auto& report = fake.machine.inventory.vendors.front();
  report.cards.resize(1);
  report.vendor = "nvidia";
  CardOf(fake, 0).vendor = "nvidia";
  CardOf(fake, 0).kind = "cuda";
  CardOf(fake, 0).pci_address = "0000:10:00.0";
  for (const char* const name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    std::filesystem::create_directories(fake.tree.string() + "/usr/lib64");
    std::filesystem::create_symlink(std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/good/" + name,
                                    fake.tree.string() + "/usr/lib64/" + name);
  }
  fake.machine.python.clear();
  fake.machine.program = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";
  fake.machine.deep = true;
}

}  // namespace

std::vector<CheckCase> CardCases() {
  return {
      {"card-present", "eight", Verdict::kOk, "", "8 x gcu S60: all answer", EightCards},
      {"card-present", "none", Verdict::kOk, "", "No accelerator", [](FakeMachine&) {}},
      {"card-present", "one that fell off the bus", Verdict::kFail, "",
       "gcu 3 (S60, A03) was there and no longer answers",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 3).present = false;
       }},
      {"card-identity", "eight", Verdict::kOk, "", "each is a card of its own", EightCards},
      {"card-identity", "one under two names", Verdict::kFail, "B8", "gcu 2, gcu 5 all say that they are A02",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 5).serial = "A02";
       }},
      {"card-visible", "all", Verdict::kOk, "", "8 cards, all visible", EightCards},
      {"card-visible", "none", Verdict::kFail, "I11", "TOPS_VISIBLE_DEVICES= hides every card", HideAll},
      {"card-visible", "fewer than ranks", Verdict::kFail, "B8", "8 ranks and 7 cards visible",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 1).visible = false;
       }},
      {"card-temperature", "cool", Verdict::kOk, "", "at most 40 °C", EightCards},
      {"card-temperature", "hot", Verdict::kFail, "", "is at 99 °C",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 4).telemetry.temperature_celsius = 99;
       }},
      {"card-health", "well", Verdict::kOk, "", "its driver calls it well", EightCards},
      {"card-health", "an alarm", Verdict::kFail, "I16", "calls it \"Alarm\"",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 4).telemetry.state = "Alarm";
       }},
      {"card-memory", "free", Verdict::kOk, "", "its memory is free", EightCards},
      {"card-memory", "held", Verdict::kWarn, "C8", "20 GiB of 48 GiB is held by others",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 4).telemetry.memory_used_bytes = 20 * kGiB;
       }},
      {"card-idle", "idle", Verdict::kOk, "", "idle", EightCards},
      {"card-idle", "busy", Verdict::kWarn, "C8", "gcu 4 (S60, A04) is at 60 %",
       [](FakeMachine& fake) {
         EightCards(fake);
         CardOf(fake, 4).telemetry.utilization_percent = 60;
       }},
      {"card-proof", "three that work", Verdict::kOk, "", "computed as the processor does", Simulated},
      {"card-proof", "hidden ones", Verdict::kCannotTell, "", "was not tried: it is hidden", HideAll},
      {"card-pace", "three alike", Verdict::kOk, "", "3 cards of one model keep the same pace", Simulated},
      {"card-pace", "hidden ones", Verdict::kCannotTell, "", "Fewer than three cards", HideAll},
      {"card-telemetry", "three that work", Verdict::kOk, "", "utilisation rose above 0 %", Simulated},
      {"card-telemetry", "hidden ones", Verdict::kCannotTell, "", "did not compute", HideAll},
      {"card-memory-errors", "none", Verdict::kOk, "", "no uncorrected memory error", NvidiaCard},
      {"card-memory-errors", "hidden ones", Verdict::kCannotTell, "", "does not count memory errors", HideAll},
  };
}

}  // namespace fulldeck::doctor
