// Whole machines, recorded as small trees, through the whole device layer.
#include "device/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "fulldeck/simulated_card.h"
#include "temporary_folder.h"

namespace fulldeck::device {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Inventory ReadMachine(const std::string& root, const base::Environment& environment = {}) {
  InventoryOptions options;
  options.root = base::SystemRoot(root);
  options.environment = environment;
  options.timeout = 20s;
  options.helper_program = std::string(FULLDECK_BUILD_DIR) + "/bin/fulldeck";
  auto inventory = InventoryReader(std::move(options)).Read();
  EXPECT_TRUE(inventory.ok()) << inventory.error().message;
  return inventory.ok() ? *inventory : Inventory();
}

std::string Machine(const std::string& name) {
  return std::string(FULLDECK_FIXTURES) + "/machines/" + name;
}

const VendorReport& ReportOf(const Inventory& inventory, const std::string& vendor) {
  for (const VendorReport& report : inventory.vendors) {
    if (report.vendor == vendor) return report;
  }
  ADD_FAILURE() << "no report of " << vendor;
  return inventory.vendors.front();
}

void ExpectNoTrouble(const Inventory& inventory) {
  for (const VendorReport& report : inventory.vendors) {
    EXPECT_THAT(report.failures, IsEmpty()) << report.vendor;
    EXPECT_FALSE(report.bad_visibility) << report.vendor;
    EXPECT_EQ(report.cards.empty(), report.absence.has_value()) << report.vendor;
  }
}

TEST(Inventory, ShowsAServerOfEightT20) {
  const Inventory inventory = ReadMachine(Machine("8xT20"));
  ExpectNoTrouble(inventory);
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U);
  std::set<std::string> serials;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(cards[i]->model, "T20");
    EXPECT_EQ(cards[i]->kind, "gcu");
    EXPECT_EQ(cards[i]->torch_device, "xla:" + std::to_string(i)) << "T20 stacks name the device xla";
    EXPECT_EQ(cards[i]->torch_module, "torch_gcu");
    EXPECT_EQ(cards[i]->collective_backend, "eccl");
    EXPECT_EQ(cards[i]->numa_node, i < 4 ? 0 : 1);
    EXPECT_EQ(cards[i]->memory_total_bytes, 32ULL << 30);
    EXPECT_THAT(cards[i]->nodes, ::testing::ElementsAre("/dev/gcu" + std::to_string(i)));
    serials.insert(cards[i]->serial.value());
  }
  EXPECT_EQ(serials.size(), 8U);
  EXPECT_EQ(cards[0]->driver, "2.4.20230829");
  EXPECT_GT(cards[0]->telemetry.utilization_percent.value(), 90);
  EXPECT_EQ(cards[0]->telemetry.memory_used_bytes, 20ULL << 30) << "62.5 % of 32 GiB: dmon and the table together";
  EXPECT_EQ(cards[7]->telemetry.utilization_percent, 0);
  EXPECT_EQ(cards[7]->telemetry.state, "Sleep");
}

TEST(Inventory, NamesTheProcessThatHoldsCardsWithItsOwner) {
  const Inventory inventory = ReadMachine(Machine("8xT20"));
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U);
  for (const std::size_t held : {0U, 1U}) {
    ASSERT_EQ(cards[held]->telemetry.holders->size(), 1U);
    const Holder& holder = cards[held]->telemetry.holders->front();
    EXPECT_EQ(holder.pid, 4242);
    EXPECT_EQ(holder.user, "trainer");
    EXPECT_EQ(holder.command, "python3 train.py --cards 2");
  }
  EXPECT_THAT(*cards[2]->telemetry.holders, IsEmpty());
}

TEST(Inventory, ShowsAServerOfEightS60WithMemoryInUse) {
  const Inventory inventory = ReadMachine(Machine("8xS60"));
  ExpectNoTrouble(inventory);
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(cards[i]->model, "S60");
    EXPECT_EQ(cards[i]->torch_device, "gcu:" + std::to_string(i));
    EXPECT_LT(cards[i]->telemetry.memory_used_bytes.value(), cards[i]->memory_total_bytes.value());
  }
  EXPECT_EQ(cards[1]->telemetry.state, "Active");
}

TEST(Inventory, ShowsAnH200FromTheKernelModulesFilesWhereThereIsNoLibrary) {
  const Inventory inventory = ReadMachine(Machine("1xH200"));
  ExpectNoTrouble(inventory);
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 1U);
  EXPECT_EQ(cards[0]->model, "NVIDIA H200");
  EXPECT_EQ(cards[0]->driver, "580.159.04");
  EXPECT_EQ(cards[0]->torch_device, "cuda:0");
  EXPECT_EQ(cards[0]->collective_backend, "nccl");
  EXPECT_FALSE(cards[0]->telemetry.utilization_percent) << "nobody told, so it is not zero";
}

TEST(Inventory, ShowsAServerOfEightAscendsInTorchsOrder) {
  const Inventory inventory = ReadMachine(Machine("8xAscend910B"));
  ExpectNoTrouble(inventory);
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(cards[i]->torch_device, "npu:" + std::to_string(i));
    EXPECT_EQ(cards[i]->memory_total_bytes, 64ULL << 30);
    EXPECT_TRUE(cards[i]->numa_node.has_value()) << "npu-smi and sysfs are matched by PCI address";
  }
  EXPECT_EQ(cards[3]->telemetry.holders->size(), 2U);
}

TEST(Inventory, CountsNoCardOnALaptop) {
  const Inventory inventory = ReadMachine(Machine("laptop"));
  ExpectNoTrouble(inventory);
  EXPECT_THAT(inventory.Cards(), IsEmpty());
  EXPECT_THAT(ReportOf(inventory, "intel").absence.value(), HasSubstr("0000:00:02.0"));
  EXPECT_EQ(inventory.host.kind, "cpu");
}

// A copy of a recorded machine that a test may modify.
class DoctoredMachine : public ::testing::Test {
 protected:
  void Copy(const std::string& machine) {
    fs::copy(Machine(machine), folder_, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  void Install(const std::string& variant, const std::string& library) {
    fs::create_directories(folder_ / "usr/lib");
    fs::copy_file(std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/" + variant + "/" + library,
                  folder_ / "usr/lib" / library, fs::copy_options::overwrite_existing);
  }
  testing::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

TEST_F(DoctoredMachine, PrefersTheLibraryToTheToolAndKeepsWhatOnlyTheToolReports) {
  Copy("8xT20");
  Install("good", "libefml.so");
  const Inventory inventory = ReadMachine(folder_.string());
  const VendorReport& report = ReportOf(inventory, "enflame");
  EXPECT_THAT(report.failures, IsEmpty());
  ASSERT_GE(report.cards.size(), 8U);
  EXPECT_THAT(report.cards[0].sources, ::testing::Contains(HasSubstr("EFML")));
}

TEST_F(DoctoredMachine, ShowsTheCardsOfAFailingLibraryThroughTheToolAndReportsWhatFailed) {
  Copy("8xT20");
  Install("segfault", "libefml.so");
  const Inventory inventory = ReadMachine(folder_.string());
  const VendorReport& report = ReportOf(inventory, "enflame");
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_THAT(report.failures[0], HasSubstr("EFML its helper process"));
  ASSERT_EQ(report.cards.size(), 8U);
  EXPECT_EQ(report.cards[3].model, "T20");
}

TEST_F(DoctoredMachine, ShowsBothVendorsWhenOneOfThemCrashes) {
  Copy("8xT20");
  fs::copy(Machine("1xH200") + "/proc/driver", folder_ / "proc/driver", fs::copy_options::recursive);
  Install("segfault", "libnvidia-ml.so.1");
  const Inventory inventory = ReadMachine(folder_.string());
  EXPECT_EQ(ReportOf(inventory, "nvidia").cards.size(), 1U);
  EXPECT_EQ(ReportOf(inventory, "nvidia").failures.size(), 1U);
  EXPECT_EQ(ReportOf(inventory, "enflame").cards.size(), 8U);
  EXPECT_THAT(ReportOf(inventory, "enflame").failures, IsEmpty());
}

TEST_F(DoctoredMachine, LeavesTheTorchNameOpenWhereTheModelIsNotKnown) {
  Copy("8xT20");
  fs::remove(folder_ / "usr/bin/efsmi");
  const Inventory inventory = ReadMachine(folder_.string());
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U);
  EXPECT_FALSE(cards[0]->model);
  EXPECT_FALSE(cards[0]->torch_device);
  EXPECT_THAT(cards[0]->notes, ::testing::Contains(HasSubstr("xla:N on T20")));
  EXPECT_EQ(cards[5]->index, 5) << "the driver's own number, from sysfs";
}

TEST_F(DoctoredMachine, NamesANodeThatAContainerLacks) {
  Copy("8xS60");
  fs::remove(folder_ / "dev/gcu5");
  const Inventory inventory = ReadMachine(folder_.string());
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U);
  EXPECT_THAT(cards[5]->notes, ::testing::Contains(HasSubstr("There is no /dev/gcu5")));
  EXPECT_THAT(cards[4]->notes, IsEmpty());
}

TEST_F(DoctoredMachine, ReadsANvmlShapedLibraryOfAnotherVendor) {
  temporary_.Write("sys/bus/pci/devices/0000:3b:00.0/class", "0x120000\n");
  temporary_.Write("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x1e3e\n");
  fs::create_directories(folder_ / "usr/local/corex/lib64");
  fs::copy_file(std::string(FULLDECK_BUILD_DIR) + "/tests/fake_libraries/good/libixml.so",
                folder_ / "usr/local/corex/lib64/libixml.so");
  const Inventory inventory = ReadMachine(folder_.string());
  const VendorReport& report = ReportOf(inventory, "iluvatar");
  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_THAT(report.cards,
              ::testing::Contains(::testing::Field(&Card::sources, ::testing::Contains(HasSubstr("IXML")))));
}

TEST(Inventory, HidesAndRenumbersCardsByTheVisibilityVariable) {
  const Inventory inventory = ReadMachine(Machine("8xS60"), {{"TOPS_VISIBLE_DEVICES", "6,2"}});
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 8U) << "hidden cards are still shown";
  EXPECT_EQ(cards[6]->torch_device, "gcu:0");
  EXPECT_EQ(cards[2]->torch_device, "gcu:1");
  EXPECT_FALSE(cards[0]->visible);
  EXPECT_FALSE(cards[0]->torch_device);
  EXPECT_EQ(ReportOf(inventory, "enflame").visibility, "TOPS_VISIBLE_DEVICES=6,2");
}

TEST(Inventory, ShowsTheCardsBesideAVisibilityListThatIsWrong) {
  const Inventory inventory = ReadMachine(Machine("8xS60"), {{"TOPS_VISIBLE_DEVICES", "0,8"}});
  EXPECT_EQ(inventory.Cards().size(), 8U);
  EXPECT_THAT(ReportOf(inventory, "enflame").bad_visibility.value(), HasSubstr("'8' names no card"));
}

class SimulatedInventory : public ::testing::Test {
 protected:
  ~SimulatedInventory() override {
    unsetenv("FULLDECK_SIMULATE");
    unsetenv("FULLDECK_SIMULATE_DIR");
  }
  // Also sets the variables of the process, because the C writer reads those.
  Inventory Read(const std::string& spec) {
    setenv("FULLDECK_SIMULATE", spec.c_str(), 1);
    setenv("FULLDECK_SIMULATE_DIR", temporary_.path().c_str(), 1);
    return ReadMachine("/", base::Environment::OfThisProcess());
  }
  testing::TemporaryFolder temporary_;
};

TEST_F(SimulatedInventory, ShowsEightLabeledCardsWithDistinctSerials) {
  const Inventory inventory = Read("gcu:8");
  EXPECT_TRUE(inventory.simulated);
  std::set<std::string> serials;
  for (const Card* card : inventory.Cards()) {
    EXPECT_TRUE(card->simulated);
    serials.insert(card->serial.value());
  }
  EXPECT_EQ(serials.size(), 8U);
}

TEST_F(SimulatedInventory, ShowsWhoWorksOnACardAndThatAnIdleOneClaimsNotTo) {
  Read("gcu:4,idle=2");
  fulldeck_simulated_card* used[2] = {};
  for (const int index : {1, 2}) {
    fulldeck_simulated_card*& card = used[index - 1];
    ASSERT_EQ(fulldeck_simulated_card_open(index, &card), 0) << fulldeck_simulated_card_error();
    ASSERT_EQ(fulldeck_simulated_card_hold(card, 1 << 20), 0);
    fulldeck_simulated_card_begin(card);  // never ended: the card is busy from now on
  }
  usleep(50'000);  // utilization is above zero only after a part of the window has passed
  const Inventory inventory = Read("gcu:4,idle=2");
  const auto cards = inventory.Cards();
  EXPECT_GT(cards[1]->telemetry.utilization_percent.value(), 0);
  EXPECT_EQ(cards[1]->telemetry.memory_used_bytes, 1U << 20);
  EXPECT_EQ(cards[1]->telemetry.holders->at(0).pid, getpid());
  EXPECT_THAT(cards[1]->telemetry.holders->at(0).command.value(), HasSubstr("device_test"));
  EXPECT_EQ(cards[1]->telemetry.state, "Active");
  EXPECT_EQ(cards[2]->telemetry.utilization_percent, 0);
  EXPECT_EQ(cards[2]->telemetry.memory_used_bytes, 1U << 20);
  EXPECT_EQ(cards[0]->telemetry.utilization_percent, 0);
  for (fulldeck_simulated_card* card : used) fulldeck_simulated_card_close(card);
}

TEST_F(SimulatedInventory, MarksADroppedCardAndKeepsItsPlace) {
  const Inventory inventory = Read("npu:4,dropped=2");
  const auto cards = inventory.Cards();
  ASSERT_EQ(cards.size(), 4U);
  EXPECT_FALSE(cards[2]->present);
  EXPECT_FALSE(cards[2]->telemetry.utilization_percent);
  EXPECT_TRUE(cards[3]->present);
}

TEST_F(SimulatedInventory, ReportsThatNothingCanBeTrainedOnSimulatedCuda) {
  const Inventory inventory = Read("cuda:2");
  EXPECT_THAT(inventory.Cards()[0]->notes, ::testing::Contains(HasSubstr("inventory and placement only")));
  EXPECT_THAT(Read("xla:2").Cards()[1]->torch_device.value(), "xla:1");
}

TEST(Inventory, RefusesAMalformedSimulation) {
  InventoryOptions options;
  options.environment = {{"FULLDECK_SIMULATE", "gcu:eight"}};
  const auto inventory = InventoryReader(std::move(options)).Read();
  ASSERT_FALSE(inventory.ok());
  EXPECT_THAT(inventory.error().message, HasSubstr("'gcu:eight' needs a number of cards"));
}

}  // namespace
}  // namespace fulldeck::device
