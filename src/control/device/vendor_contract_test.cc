// The contract of every vendor, tested on each vendor: on an empty machine, on one with two of its cards, on one from
// which half of the files are missing, and with sources that failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "device/inventory.h"
#include "device/simulated.h"
#include "device/vendor.h"
#include "temporary_folder.h"
#include "wire/simulated_spec.h"

namespace fulldeck::device {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Hex(unsigned value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%0*x\n", digits, value);
  return text;
}

struct Subject {
  const char* name;
  std::unique_ptr<Vendor> (*make)();
  bool real;
};

void PrintTo(const Subject& subject, std::ostream* out) {
  *out << subject.name;
}

std::unique_ptr<Vendor> MakeReal(const char* name) {
  for (auto& vendor : RealVendors()) {
    if (std::string_view(vendor->traits().name) == name) return std::move(vendor);
  }
  return nullptr;
}

std::unique_ptr<Vendor> MakeSimulatedOfKind(const char* spec) {
  const base::Environment nowhere = {{"FULLDECK_SIMULATE_DIR", "/nonexistent/fulldeck"}};
  return MakeSimulated(*wire::ParseSimulatedSpec(spec), nowhere);
}

class VendorContract : public ::testing::TestWithParam<Subject> {
 protected:
  VendorContract() : vendor_(GetParam().make()) {}

  fs::path PciFolder(int number) const {
    return folder_ / "sys/bus/pci/devices" / ("0000:" + std::to_string(3 + number) + "d:00.0");
  }

  // Two cards of this vendor on two NUMA nodes, as the kernel shows them.
  void PutTwoCards() {
    for (int i = 0; i < 2; ++i) {
      temporary_.Write(PciFolder(i) / "class", "0x120000\n");
      if (std::string_view(GetParam().name) == "intel") temporary_.Write(PciFolder(i) / "class", "0x038000\n");
      temporary_.Write(PciFolder(i) / "vendor", Hex(vendor_->traits().pci_vendors[0], 4));
      temporary_.Write(PciFolder(i) / "device", "0xabcd\n");
      temporary_.Write(PciFolder(i) / "numa_node", std::to_string(i) + "\n");
      temporary_.Write(PciFolder(i) / "local_cpulist", i == 0 ? "0-15\n" : "16-31\n");
      const std::string prefix = vendor_->traits().node_prefix;
      if (!prefix.empty()) temporary_.Write(folder_.string() + prefix + std::to_string(i), "");
    }
  }

  VendorReport Report(const std::vector<Answer>& answers = {}) const {
    return vendor_->Report(TakeSurvey(base::SystemRoot(folder_.string())), answers);
  }

  testing::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
  std::unique_ptr<Vendor> vendor_;
};

// What only vendors with real cards support.
class RealVendorContract : public VendorContract {};

TEST_P(RealVendorContract, ReportsNotHereAndWhyOnAnEmptyMachineAndQueriesNothing) {
  const Survey survey = TakeSurvey(base::SystemRoot(folder_.string()));
  EXPECT_THAT(vendor_->Sources(survey, {}), IsEmpty());
  const VendorReport report = vendor_->Report(survey, {});
  EXPECT_THAT(report.cards, IsEmpty());
  ASSERT_TRUE(report.absence.has_value());
  EXPECT_THAT(*report.absence, HasSubstr("no PCI device of vendor"));
  EXPECT_THAT(report.failures, IsEmpty());
}

TEST_P(VendorContract, ListsItsCardsApartAndFillsInTheNamesThatUsersNeed) {
  if (GetParam().real) PutTwoCards();
  const VendorReport report = Report();
  ASSERT_EQ(report.cards.size(), 2U);
  EXPECT_NE(report.cards[0].index, report.cards[1].index);
  for (const Card& card : report.cards) {
    EXPECT_EQ(card.vendor, vendor_->traits().name);
    EXPECT_EQ(card.kind, vendor_->traits().kind);
    EXPECT_EQ(card.simulated, !GetParam().real);
    EXPECT_THAT(card.collective_backend, Not(IsEmpty()));
    EXPECT_THAT(card.sources, Not(IsEmpty()));
  }
  if (!GetParam().real) {
    EXPECT_NE(report.cards[0].serial, report.cards[1].serial);
    return;
  }
  EXPECT_EQ(report.cards[1].pci_address, "0000:4d:00.0");
  EXPECT_EQ(report.cards[1].numa_node, 1);
  EXPECT_EQ(report.cards[1].local_cpus, "16-31");
}

TEST_P(RealVendorContract, LeavesWhatNobodyReportedAbsent) {
  PutTwoCards();
  for (const Card& card : Report().cards) {
    EXPECT_FALSE(card.telemetry.utilization_percent);
    EXPECT_FALSE(card.telemetry.memory_used_bytes);
    EXPECT_FALSE(card.telemetry.power_watts);
    EXPECT_FALSE(card.telemetry.temperature_celsius);
    EXPECT_FALSE(card.memory_total_bytes);
    EXPECT_FALSE(card.serial);
  }
}

TEST_P(RealVendorContract, KeepsItsCardsWhenHalfOfTheFilesAreGone) {
  PutTwoCards();
  for (const char* name : {"device", "numa_node", "local_cpulist"}) fs::remove(PciFolder(1) / name);
  const VendorReport report = Report();
  ASSERT_EQ(report.cards.size(), 2U);
  EXPECT_FALSE(report.cards[1].numa_node);
  EXPECT_FALSE(report.cards[1].local_cpus);
}

TEST_P(RealVendorContract, KeepsItsCardsAndReportsASourceThatFails) {
  PutTwoCards();
  const VendorReport report = Report({{"the library", base::Error{"was killed by signal 11"}}});
  EXPECT_EQ(report.cards.size(), 2U);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0], "the library was killed by signal 11");
}

TEST_P(RealVendorContract, BelievesTheFirstSourceThatReports) {
  PutTwoCards();
  SourceReading better{"better 1.0", "7.7", {}, {}};
  better.cards.push_back({.index = 1, .serial = "SN1", .pci_address = "0000:4d:00.0", .utilization_percent = 40});
  SourceReading worse{"worse 2.0", std::nullopt, {}, {"one line could not be read."}};
  worse.cards.push_back({.index = 1, .serial = "OTHER", .pci_address = "0000:4d:00.0", .power_watts = 99});
  const VendorReport report = Report({{"better", better}, {"worse", worse}});
  ASSERT_EQ(report.cards.size(), 2U);
  const Card& card = report.cards[1];
  EXPECT_EQ(card.serial, "SN1");
  EXPECT_EQ(card.telemetry.utilization_percent, 40);
  EXPECT_EQ(card.telemetry.power_watts, 99);
  EXPECT_THAT(card.sources, ::testing::IsSupersetOf({"better 1.0", "worse 2.0"}));
  EXPECT_FALSE(report.cards[0].serial);
  EXPECT_THAT(report.notes, ::testing::Contains("worse: one line could not be read."));
}

TEST_P(RealVendorContract, ShowsACardThatOnlyASourceKnows) {
  PutTwoCards();
  SourceReading reading{"tool", std::nullopt, {}, {}};
  reading.cards.push_back({.index = 5, .pci_address = "0000:ff:00.0"});
  const VendorReport report = Report({{"tool", reading}});
  ASSERT_EQ(report.cards.size(), 3U);
  EXPECT_EQ(report.cards[2].index, 5);
  EXPECT_EQ(report.cards[2].vendor, vendor_->traits().name);
}

TEST_P(RealVendorContract, SurvivesFilesThatHoldNonsense) {
  PutTwoCards();
  temporary_.Write(PciFolder(0) / "numa_node", "minus one\n");
  temporary_.Write(PciFolder(0) / "device", std::string(5000, 'f'));
  temporary_.Write(PciFolder(0) / "local_cpulist", "\x1b[31m0-3\n");
  temporary_.Write(PciFolder(0) / "current_link_speed", "\x1b]0;title\x07\n");
  temporary_.Write(PciFolder(0) / "current_link_width", "16\n");
  temporary_.Write(folder_ / "sys/bus/pci/devices/not-an-address/class", "0x120000\n");
  const VendorReport report = Report();
  ASSERT_EQ(report.cards.size(), 2U);
  EXPECT_FALSE(report.cards[0].numa_node);
  EXPECT_EQ(report.cards[0].local_cpus->find('\x1b'), std::string::npos);
  EXPECT_EQ(report.cards[0].link->find('\x1b'), std::string::npos);
}

std::vector<Subject> RealSubjects() {
  return {{"nvidia", [] { return MakeReal("nvidia"); }, true},
          {"enflame", [] { return MakeReal("enflame"); }, true},
          {"ascend", [] { return MakeReal("ascend"); }, true},
          {"cambricon", [] { return MakeReal("cambricon"); }, true},
          {"moorethreads", [] { return MakeReal("moorethreads"); }, true},
          {"iluvatar", [] { return MakeReal("iluvatar"); }, true},
          {"amd", [] { return MakeReal("amd"); }, true},
          {"intel", [] { return MakeReal("intel"); }, true},
          {"metax", [] { return MakeReal("metax"); }, true}};
}

std::vector<Subject> AllSubjects() {
  std::vector<Subject> subjects = RealSubjects();
  subjects.push_back({"simulated_gcu", [] { return MakeSimulatedOfKind("gcu:2"); }, false});
  subjects.push_back({"simulated_cuda", [] { return MakeSimulatedOfKind("cuda:2"); }, false});
  return subjects;
}

constexpr auto kSubjectName = [](const auto& param_info) { return param_info.param.name; };
INSTANTIATE_TEST_SUITE_P(Vendors, VendorContract, ::testing::ValuesIn(AllSubjects()), kSubjectName);
INSTANTIATE_TEST_SUITE_P(Vendors, RealVendorContract, ::testing::ValuesIn(RealSubjects()), kSubjectName);

TEST(VendorContractSuite, CoversEveryVendorOfTheTable) {
  EXPECT_EQ(RealVendors().size(), RealSubjects().size());
}

TEST(OtherVendors, ReadWhatAmdsDriverExportsInSysfs) {
  const testing::TemporaryFolder temporary;
  const fs::path& folder = temporary.path();
  const fs::path pci = folder / "sys/bus/pci/devices/0000:c1:00.0";
  temporary.Write(pci / "class", "0x038000\n");
  temporary.Write(pci / "vendor", "0x1002\n");
  temporary.Write(pci / "unique_id", "7e2a13b0c4d5e6f7\n");
  temporary.Write(pci / "gpu_busy_percent", "87\n");
  temporary.Write(pci / "mem_info_vram_total", "68702699520\n");
  temporary.Write(pci / "mem_info_vram_used", "1024\n");
  temporary.Write(pci / "hwmon/hwmon4/power1_average", "312000000\n");
  temporary.Write(pci / "hwmon/hwmon4/temp1_input", "51000\n");
  fs::create_directories(pci / "drm/renderD128");
  const auto vendor = MakeReal("amd");
  const VendorReport report = vendor->Report(TakeSurvey(base::SystemRoot(folder.string())), {});
  ASSERT_EQ(report.cards.size(), 1U);
  const Card& card = report.cards[0];
  EXPECT_EQ(card.uuid, "GPU-7e2a13b0c4d5e6f7");
  EXPECT_EQ(card.telemetry.utilization_percent, 87);
  EXPECT_EQ(card.memory_total_bytes, 68702699520U);
  EXPECT_DOUBLE_EQ(card.telemetry.power_watts.value(), 312);
  EXPECT_DOUBLE_EQ(card.telemetry.temperature_celsius.value(), 51);
  EXPECT_THAT(card.nodes, ::testing::ElementsAre("/dev/dri/renderD128"));
}

}  // namespace
}  // namespace fulldeck::device
