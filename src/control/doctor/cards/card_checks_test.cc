// Cards: every check with a fixture that makes it fail and one that makes it pass. The deep checks start probe
// processes: the program itself with a fake CUDA driver, and with simulated cards without torch.
// tests/doctor/test_doctor_cards.py has those with torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "doctor/cards/card_proof.h"
#include "doctor/check.h"
#include "doctor/machine/fake_machine_for_test.h"
#include "temporary_folder.h"

namespace fulldeck::doctor {
namespace {

using fulldeck::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Finding> RunCheck(std::string_view id, const MachineUnderTest& machine) {
  for (const Check& check : CardChecks()) {
    if (check.id == id) return check.run(machine);
  }
  ADD_FAILURE() << "there is no check " << id;
  return {};
}

// A card's finding in English, prefixed with its verdict.
std::string Text(const Finding& finding) {
  const char* const verdicts[] = {"ok: ", "warn: ", "fail: ", "cannot tell: "};
  return verdicts[static_cast<int>(finding.verdict)] + finding.evidence.english;
}

std::string All(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += Text(finding) + "\n";
    EXPECT_FALSE(finding.evidence.english.empty());
    EXPECT_FALSE(finding.evidence.chinese.empty());
    if (finding.verdict != Verdict::kOk) {
      EXPECT_FALSE(finding.fix.english.empty()) << Text(finding);
    }
  }
  return text;
}

MachineUnderTest WithCards(int count, const std::string& vendor = "nvidia") {
  MachineUnderTest machine;
  machine.root = base::SystemRoot("/nonexistent-root");
  machine.program = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";
  device::VendorReport report;
  report.vendor = vendor;
  report.title = "Vendor";
  for (int i = 0; i < count; ++i) {
    device::Card card;
    card.vendor = vendor;
    card.kind = vendor == "nvidia" ? "cuda" : "gcu";
    card.index = i;
    card.model = "H200";
    card.serial = "S" + std::to_string(i);
    card.pci_address = "0000:1" + std::to_string(i) + ":00.0";
    card.memory_total_bytes = std::uint64_t{100} << 30;
    card.torch_type = card.kind;
    card.torch_device = card.kind + ":" + std::to_string(i);
    card.telemetry.temperature_celsius = 40;
    card.telemetry.utilization_percent = 0;
    card.telemetry.memory_used_bytes = 1 << 20;
    card.telemetry.state = "OK";
    report.cards.push_back(card);
  }
  machine.inventory.vendors.push_back(report);
  return machine;
}

device::Card& CardOf(MachineUnderTest& machine, std::size_t index) {
  return machine.inventory.vendors[0].cards[index];
}

TEST(CardChecks, ReportNothingBadOfHealthyCards) {
  const MachineUnderTest machine = WithCards(4);
  for (const Check& check : CardChecks()) {
    if (check.only_deep) continue;
    for (const Finding& finding : check.run(machine))
      EXPECT_EQ(finding.verdict, Verdict::kOk) << check.id << " " << Text(finding);
  }
}

TEST(CardChecks, AMachineWithoutCardsIsWellAndNothingIsProvedOnIt) {
  const MachineUnderTest machine = WithCards(0);
  EXPECT_THAT(All(RunCheck("card-present", machine)), HasSubstr("ok: No accelerator"));
  for (const Check& check : CardChecks()) {
    if (check.id == "card-present") continue;
    EXPECT_TRUE(check.run(machine).empty()) << check.id;
  }
}

TEST(CardPresent, NamesTheCardThatFellOffTheBus) {
  MachineUnderTest machine = WithCards(4);
  CardOf(machine, 2).present = false;
  const std::string text = All(RunCheck("card-present", machine));
  EXPECT_THAT(text, HasSubstr("fail: cuda 2 (H200, S2) was there and no longer answers"));
  EXPECT_THAT(text, Not(HasSubstr("cuda 1")));
}

TEST(CardPresent, NamesALibraryThatDoesNotAnswerAndACardWithoutADriver) {
  MachineUnderTest machine = WithCards(1);
  CardOf(machine, 0).notes = {"No NVIDIA driver is loaded: this card cannot be used yet."};
  EXPECT_THAT(All(RunCheck("card-present", machine)), HasSubstr("fail: cuda 0 (H200, S0): No NVIDIA driver is loaded"));
  machine = WithCards(0);
  machine.inventory.vendors[0].failures = {"EFML: the driver is not loaded (code 6)"};
  const auto findings = RunCheck("card-present", machine);
  EXPECT_THAT(All(findings), HasSubstr("fail: Vendor: EFML: the driver is not loaded"));
  EXPECT_EQ(findings[0].row, "D2");
}

TEST(CardIdentity, FindsOneCardUnderTwoNames) {
  MachineUnderTest machine = WithCards(4);
  CardOf(machine, 3).serial = "S1";
  EXPECT_THAT(All(RunCheck("card-identity", machine)), HasSubstr("fail: cuda 1, cuda 3 all say that they are S1"));
  CardOf(machine, 0).serial.reset();
  CardOf(machine, 0).pci_address.reset();
  EXPECT_THAT(All(RunCheck("card-identity", machine)), HasSubstr("cannot tell: cuda 0"));
}

TEST(CardVisible, RefusesAListThatIsWrongThatHidesAllOrThatLeavesTooFew) {
  MachineUnderTest machine = WithCards(4);
  machine.ranks = 5;
  EXPECT_THAT(All(RunCheck("card-visible", machine)),
              HasSubstr("fail: 5 ranks and 4 cards visible: ranks would share a card"));
  machine.ranks = 4;
  machine.inventory.vendors[0].bad_visibility = "CUDA_VISIBLE_DEVICES=0,9: there is no card 9";
  EXPECT_THAT(All(RunCheck("card-visible", machine)), HasSubstr("fail: Vendor: CUDA_VISIBLE_DEVICES=0,9"));
  machine.inventory.vendors[0].bad_visibility.reset();
  machine.inventory.vendors[0].visibility = "CUDA_VISIBLE_DEVICES=";
  for (std::size_t i = 0; i < 4; ++i) CardOf(machine, i).visible = false;
  EXPECT_THAT(All(RunCheck("card-visible", machine)), HasSubstr("fail: CUDA_VISIBLE_DEVICES= hides every card"));
}

TEST(CardTemperature, WarnsOfAHotCardAndIsInconclusiveWithoutASensor) {
  MachineUnderTest machine = WithCards(3);
  CardOf(machine, 0).telemetry.temperature_celsius = 88;
  CardOf(machine, 1).telemetry.temperature_celsius = 99;
  CardOf(machine, 2).telemetry.temperature_celsius.reset();
  const std::string text = All(RunCheck("card-temperature", machine));
  EXPECT_THAT(text, HasSubstr("warn: cuda 0 (H200, S0) is at 88 °C"));
  EXPECT_THAT(text, HasSubstr("fail: cuda 1 (H200, S1) is at 99 °C"));
  EXPECT_THAT(text, HasSubstr("cannot tell: cuda 2"));
}

TEST(CardHealth, RepeatsWhatTheDriverReportsAndDoesNotTakeSleepForHealth) {
  MachineUnderTest machine = WithCards(3);
  CardOf(machine, 0).telemetry.state = "Alarm";
  CardOf(machine, 1).telemetry.state = "Sleep";
  const std::string text = All(RunCheck("card-health", machine));
  EXPECT_THAT(text, HasSubstr("fail: cuda 0 (H200, S0): its driver calls it \"Alarm\""));
  EXPECT_THAT(text, HasSubstr("cannot tell: cuda 1"));
  EXPECT_THAT(text, HasSubstr("ok: cuda 2"));
}

TEST(CardMemory, NamesWhoHoldsTheMemory) {
  MachineUnderTest machine = WithCards(2);
  CardOf(machine, 1).telemetry.memory_used_bytes = std::uint64_t{30} << 30;
  CardOf(machine, 1).telemetry.holders = {{4711, "wang", "python train.py", std::nullopt}};
  EXPECT_THAT(
      All(RunCheck("card-memory", machine)),
      HasSubstr("warn: cuda 1 (H200, S1): 30 GiB of 100 GiB is held by others: pid 4711 of wang (python train.py)"));
}

TEST(CardIdle, NamesACardThatIsBusyBeforeTheRun) {
  MachineUnderTest machine = WithCards(2);
  CardOf(machine, 0).telemetry.utilization_percent = 97;
  CardOf(machine, 1).telemetry.utilization_percent.reset();
  const std::string text = All(RunCheck("card-idle", machine));
  EXPECT_THAT(text, HasSubstr("warn: cuda 0 (H200, S0) is at 97 %"));
  EXPECT_THAT(text, HasSubstr("cannot tell: cuda 1"));
}

TEST(FindSlow, ComparesWithTheMedianOfTheOthersOfTheSameModel) {
  std::vector<CardProof> proofs(5);
  for (CardProof& proof : proofs) proof.pace_seconds = 1.0;
  proofs[3].pace_seconds = 2.5;
  proofs[1].to_card_bytes_per_second = 5e9;
  EXPECT_TRUE(FindSlow({"a", "b", "c", "d", "e"}, proofs).empty());
  const auto slow = FindSlow({"a", "a", "a", "a", "a"}, proofs);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].card, 3U);
  EXPECT_EQ(slow[0].what, "pace");
  EXPECT_EQ(slow[0].median, 1.0);
  EXPECT_TRUE(FindSlow({"a", "b", "b", "a", "b"}, proofs).empty()) << "two cards cannot say which is the slow one";
}

// A machine with the fake CUDA driver.
class CudaProof : public ::testing::Test {
 protected:
  void Install(const std::string& variant, const std::string& library = "libcuda.so.1") {
    const std::filesystem::path at = root_.path() / "usr/lib64";
    std::filesystem::create_directories(at);
    std::filesystem::remove(at / library);
    std::filesystem::create_symlink(
        std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/" + variant + "/" + library, at / library);
  }

  MachineUnderTest Machine(int cards, const std::string& faults) {
    MachineUnderTest machine = WithCards(cards);
    machine.root = base::SystemRoot(root_.string());
    machine.environment = {{"FAKE_CUDA", faults}, {"FAKE_CUDA_CARDS", std::to_string(cards)}};
    machine.deep = true;
    machine.timeout = std::chrono::seconds(3);
    return machine;
  }

  TemporaryFolder root_;
};

TEST_F(CudaProof, NamesEveryCardThatIsWrongAndKeepsWhatTheOthersReported) {
  Install("good");
  const MachineUnderTest machine = Machine(10, "1=lie,2=hang,3=refuse,4=remember,5=slow,6=crash,7=copy,8=full");
  const std::vector<Finding> findings = RunCheck("card-proof", machine);
  ASSERT_EQ(findings.size(), 10U);
  EXPECT_THAT(Text(findings[0]), AllOf(HasSubstr("ok: cuda 0"), HasSubstr("through CUDA driver 12.4"),
                                       HasSubstr("GB/s to it"), HasSubstr("of memory checked at")));
  EXPECT_THAT(Text(findings[1]), AllOf(HasSubstr("fail: cuda 1 (H200, S1) computes or remembers wrongly"),
                                       HasSubstr("1 of 262144 results differ from the processor's")));
  EXPECT_THAT(
      Text(findings[2]),
      HasSubstr("fail: cuda 2 (H200, S2) hangs: its test did not answer within 3 s and was stopped, at \"compute\""));
  EXPECT_THAT(Text(findings[3]),
              HasSubstr("fail: cuda 3 (H200, S3) refuses at \"compute\": computing: unspecified launch failure "
                        "(CUDA_ERROR_LAUNCH_FAILED, code 719)"));
  EXPECT_THAT(Text(findings[4]), AllOf(HasSubstr("fail: cuda 4"), HasSubstr("memory does not keep what is written")));
  EXPECT_THAT(Text(findings[5]), HasSubstr("ok: cuda 5"));
  EXPECT_THAT(Text(findings[6]), HasSubstr("fail: cuda 6 (H200, S6): the process that used it was killed by signal 6"));
  EXPECT_THAT(Text(findings[7]),
              AllOf(HasSubstr("fail: cuda 7"), HasSubstr("1 of 524288 words differ, the first at byte 4096")));
  EXPECT_THAT(Text(findings[8]),
              HasSubstr("fail: cuda 8 (H200, S8) refuses at \"allocate\": allocating memory: out of memory"));
  EXPECT_THAT(Text(findings[9]), HasSubstr("ok: cuda 9"));

  const std::string pace = All(RunCheck("card-pace", machine));
  EXPECT_THAT(pace, HasSubstr("warn: cuda 5 (H200, S5) is far slower than the others"));
  EXPECT_THAT(pace, HasSubstr("the others' median is"));
  EXPECT_THAT(pace, Not(HasSubstr("cuda 0")));
}

TEST_F(CudaProof, CardsThatAreWellKeepOnePaceAndTheWrongCardIsFound) {
  Install("good");
  MachineUnderTest machine = Machine(4, "");
  CardOf(machine, 0).uuid = "GPU-11111111-1111-1111-1111-111111111111";
  CardOf(machine, 1).uuid = "GPU-99999999-1111-1111-1111-111111111111";
  CardOf(machine, 3).visible = false;
  const std::vector<Finding> findings = RunCheck("card-proof", machine);
  EXPECT_EQ(findings[0].verdict, Verdict::kOk) << Text(findings[0]);
  EXPECT_THAT(Text(findings[1]),
              HasSubstr("fail: cuda 1 (H200, S1): the card that answered is GPU-22222222-2222-2222-2222-222222222222"));
  EXPECT_THAT(Text(findings[3]), HasSubstr("cannot tell: cuda 3 (H200, S3) was not tried: it is hidden"));
  EXPECT_THAT(All(RunCheck("card-pace", machine)), HasSubstr("ok: 3 cards of one model keep the same pace"));
  EXPECT_THAT(All(RunCheck("card-telemetry", machine)), HasSubstr("cannot tell: cuda 0"));
}

TEST_F(CudaProof, MemoryErrorsThatTheDriverCountedAreNamed) {
  Install("good");
  Install("troubled", "libnvidia-ml.so.1");
  const MachineUnderTest machine = Machine(3, "memory errors");
  const auto findings = RunCheck("card-memory-errors", machine);
  EXPECT_THAT(All(findings),
              AllOf(HasSubstr("fail: cuda 1 (H200, S1) has had 3 uncorrected memory errors"),
                    HasSubstr("fail: cuda 2 (H200, S2) has no spare memory rows left"), HasSubstr("ok: cuda 0")));
  EXPECT_EQ(findings[0].row, "I16");
}

TEST_F(CudaProof, ADriverThatIsAbsentOrUnusableIsNeverOk) {
  MachineUnderTest machine = Machine(1, "absent");
  EXPECT_THAT(All(RunCheck("card-proof", machine)),
              HasSubstr("cannot tell: cuda 0 (H200, S0) was not tried: libcuda.so.1 cannot be loaded"));
  const std::pair<const char*, const char*> rows[] = {
      {"not_elf", "fail: cuda 0 (H200, S0) refuses at \"driver\": libcuda.so.1 cannot be loaded: "},
      {"no_symbol", "is not a CUDA driver that can be used: it has no cuLaunchKernel"},
      {"no_device", "initialising the driver: no CUDA-capable device is detected"},
  };
  for (const auto& [variant, expected_text] : rows) {
    Install(variant);
    machine = Machine(1, variant);
    EXPECT_THAT(All(RunCheck("card-proof", machine)), AllOf(HasSubstr("fail: "), HasSubstr(expected_text)));
  }
  Install("good");
  machine = Machine(1, "0=exclusive");
  EXPECT_THAT(All(RunCheck("card-proof", machine)), HasSubstr("another process has the card for itself"));
}

// Cards of other vendors are used through the user's torch.
TEST(TorchProof, ACardIsNotCalledBadForWhatItsTorchCannotDo) {
  TemporaryFolder folder;
  MachineUnderTest machine = WithCards(1, "enflame");
  CardOf(machine, 0).torch_module = "torch_gcu";
  CardOf(machine, 0).torch_device.reset();
  machine.deep = true;
  EXPECT_THAT(All(RunCheck("card-proof", machine)),
              HasSubstr("cannot tell: gcu 0 (H200, S0) was not tried: there is no Python"));
  machine.python = kSystemPython;
  machine.environment = {{"PYTHONPATH", folder.string()}, {"PYTHONNOUSERSITE", "1"}};
  folder.Write("torch/__init__.py", "raise ImportError('libtorch.so is not there')\n");
  EXPECT_THAT(All(RunCheck("card-proof", machine)),
              HasSubstr("cannot tell: gcu 0 (H200, S0) was not tried: torch cannot be imported: libtorch.so"));
  folder.Write(
      "torch/__init__.py",
      "__version__ = '2.6.0'\n"
      "def set_num_threads(count): pass\n"
      "def empty(size, device):\n"
      "    raise RuntimeError('Expected one of cpu, cuda, xla device type at start of device string: ' + device)\n");
  machine.environment.Set("TURN", "1");
  EXPECT_THAT(All(RunCheck("card-proof", machine)),
              HasSubstr("cannot tell: gcu 0 (H200, S0) was not tried: torch_gcu cannot be imported"));
  folder.Write("torch_gcu.py", "");
  machine.environment.Set("TURN", "2");
  EXPECT_THAT(All(RunCheck("card-proof", machine)),
              HasSubstr("cannot tell: gcu 0 (H200, S0) was not tried: this torch does not know the card"));
  folder.Write(
      "torch_gcu.py",
      "import torch\ndef broken(size, device): raise RuntimeError('topsMalloc failed: 719')\ntorch.empty = broken\n");
  machine.environment.Set("TURN", "3");
  EXPECT_THAT(All(RunCheck("card-proof", machine)),
              HasSubstr("fail: gcu 0 (H200, S0) refuses at \"allocate\": topsMalloc failed: 719"));
}

// Simulated cards if no torch supports them: the program itself is the probe.
TEST(SimulatedProof, NamesEveryFaultWithoutTorch) {
  TemporaryFolder folder;
  device::InventoryOptions options;
  options.environment = {{"FULLDECK_SIMULATE", "gcu:8,idle=1,slow=2:8,broken=3,lying=4,hung=5,dropped=6"},
                         {"XDG_RUNTIME_DIR", folder.string()},
                         {"TMPDIR", folder.string()}};
  MachineUnderTest machine;
  auto inventory = device::InventoryReader(options).Read();
  ASSERT_TRUE(inventory.ok());
  machine.inventory = *inventory;
  machine.environment = options.environment;
  machine.program = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";
  machine.timeout = std::chrono::seconds(5);
  machine.deep = true;
  const std::vector<Finding> findings = RunCheck("card-proof", machine);
  ASSERT_EQ(findings.size(), 8U);
  EXPECT_THAT(Text(findings[0]),
              AllOf(HasSubstr("ok: gcu 0"), HasSubstr("[simulated]"), HasSubstr("compared with itself")));
  EXPECT_THAT(Text(findings[3]), AllOf(HasSubstr("fail: gcu 3"), HasSubstr("broken and refuses to compute")));
  EXPECT_THAT(Text(findings[4]), AllOf(HasSubstr("fail: gcu 4"), HasSubstr("computes or remembers wrongly")));
  EXPECT_THAT(Text(findings[5]), AllOf(HasSubstr("fail: gcu 5"), HasSubstr("hangs"), HasSubstr("\"compute\"")));
  EXPECT_THAT(Text(findings[6]), AllOf(HasSubstr("fail: gcu 6"), HasSubstr("was not tried: it is not there")));
  EXPECT_THAT(Text(findings[7]), HasSubstr("ok: gcu 7"));
  EXPECT_THAT(All(RunCheck("card-pace", machine)),
              AllOf(HasSubstr("warn: gcu 2"), HasSubstr("the same computation takes"), Not(HasSubstr("gcu 7"))));
  EXPECT_THAT(All(RunCheck("card-telemetry", machine)),
              AllOf(HasSubstr("fail: gcu 1"), HasSubstr("stayed at 0 %"), HasSubstr("ok: gcu 0")));
  EXPECT_THAT(All(RunCheck("card-present", machine)), HasSubstr("fail: gcu 6"));
}

}  // namespace
}  // namespace fulldeck::doctor
