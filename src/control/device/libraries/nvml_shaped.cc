#include "device/libraries/nvml_shaped.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "device/libraries/library_answers.h"
#include "device/libraries/nvml_processes.h"
#include "device/pci_address.h"

namespace fulldeck::device {
namespace {

// Layouts from NVML's published reference, for 64-bit Linux.
using Handle = void*;

struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, device_and_vendor_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct Utilization {
  unsigned int card, memory;
};
static_assert(sizeof(Utilization) == 8);

struct MemoryV1 {
  unsigned long long total, free, used;  // used includes what the driver reserves
};
static_assert(sizeof(MemoryV1) == 24);

struct MemoryV2 {
  unsigned int version = sizeof(MemoryV2) | 2u << 24;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);

constexpr unsigned kTextSize = 96;  // the longest string of any call, including its terminator
constexpr int kDieSensor = 0;
constexpr int kLastPerformanceState = 15;
constexpr unsigned kMigEnabled = 1;
constexpr int kCardIsLost = 15;
constexpr int kCardNeedsReset = 16;

constexpr CodeMeaning kCodes[] = {
    {1, "the library is not initialised"},
    {2, "an argument was refused"},
    {3, "this card does not support it"},
    {4, "no permission"},
    {6, "not found"},
    {7, "the buffer was too small"},
    {8, "a power cable of the card is not attached properly"},
    {9, "the driver is not loaded"},
    {10, "it took too long"},
    {11, "the kernel has trouble with the card's interrupts"},
    {12, "a library that it needs could not be loaded"},
    {13, "this version of the library cannot do it"},
    {14, "the card's own data store is corrupted"},
    {15, "the card is lost: it fell off the bus or cannot be reached"},
    {16, "the card needs a reset before it can be used again"},
    {17, "the system or a cgroup denies access to the control device"},
    {18, "driver and library have different versions; load the driver again or restart the host"},
    {19, "the card is in use"},
    {20, "there is not enough memory"},
    {21, "there are no data"},
    {23, "a resource other than memory ran out"},
    {25, "the version of a struct was refused"},
    {26, "the function is no longer offered"},
    {27, "the system is not ready yet"},
    {28, "no card was found"},
    {29, "the card is in the wrong state for it"},
    {999, "unknown error inside the driver"},
};

class NvmlShapedReader : public LibraryReader {
 public:
  NvmlShapedReader(base::DynamicLibrary library, const NvmlShape& shape)
      : library_(std::move(library)), shape_(shape) {}

  ~NvmlShapedReader() override {
    if (initialized_ && shutdown_ != nullptr) shutdown_();
  }

  base::Result<void> Initialize();
  base::Result<SourceReading> Read() override;

 private:
  using GetNumber = int(Handle, unsigned int*);
  using GetText = int(Handle, char*, unsigned int);
  using GetSystemText = int(char*, unsigned int);

  template <typename Function>
  Function* Find(const char* name) const {
    return library_.Find<Function>((std::string(shape_.prefix) + name).c_str());
  }
  std::string Words(int code) const {
    return DescribeCode(kCodes, code, error_string_ != nullptr ? error_string_(code) : nullptr);
  }

  CardReading ReadCard(unsigned index) const;
  void ReadMemory(Handle handle, CardReading* card, const AnswerCheck& check) const;
  std::optional<std::string> ReadPciAddress(Handle handle, const AnswerCheck& check) const;
  bool Succeeded(int code, const AnswerCheck& check) const;
  std::optional<unsigned> Number(GetNumber* call, Handle handle, const AnswerCheck& check) const;
  std::optional<std::string> Text(const char* what, GetText* call, Handle handle, const AnswerCheck& check) const;
  std::optional<std::string> Text(const char* what, GetSystemText* call, const AnswerCheck& check) const;

  base::DynamicLibrary library_;
  const NvmlShape& shape_;
  bool initialized_ = false;

  int (*shutdown_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*get_count_)(unsigned int*) = nullptr;
  int (*get_handle_)(unsigned int, Handle*) = nullptr;

  GetSystemText* get_driver_version_ = nullptr;
  GetSystemText* get_library_version_ = nullptr;
  GetText* get_name_ = nullptr;
  GetText* get_uuid_ = nullptr;
  GetText* get_serial_ = nullptr;
  int (*get_pci_info_)(Handle, PciInfo*) = nullptr;
  int (*get_utilization_)(Handle, Utilization*) = nullptr;
  int (*get_memory_v2_)(Handle, MemoryV2*) = nullptr;
  int (*get_memory_v1_)(Handle, MemoryV1*) = nullptr;
  GetNumber* get_power_ = nullptr;
  GetNumber* get_enforced_power_limit_ = nullptr;
  GetNumber* get_set_power_limit_ = nullptr;
  int (*get_temperature_)(Handle, int, unsigned int*) = nullptr;
  GetNumber* get_performance_state_ = nullptr;
  GetNumber* get_minor_number_ = nullptr;
  int (*get_mig_mode_)(Handle, unsigned int*, unsigned int*) = nullptr;
  NvmlProcessCall* get_processes_ = nullptr;
};

base::Result<void> NvmlShapedReader::Initialize() {
  const auto init = Find<int()>("Init_v2");
  get_count_ = Find<int(unsigned int*)>("DeviceGetCount_v2");
  get_handle_ = Find<int(unsigned int, Handle*)>("DeviceGetHandleByIndex_v2");
  if (init == nullptr) return MissingFunction(library_.path(), std::string(shape_.prefix) + "Init_v2");
  if (get_count_ == nullptr) return MissingFunction(library_.path(), std::string(shape_.prefix) + "DeviceGetCount_v2");
  if (get_handle_ == nullptr) {
    return MissingFunction(library_.path(), std::string(shape_.prefix) + "DeviceGetHandleByIndex_v2");
  }

  shutdown_ = Find<int()>("Shutdown");
  error_string_ = Find<const char*(int)>("ErrorString");
  get_driver_version_ = Find<GetSystemText>("SystemGetDriverVersion");
  get_library_version_ = library_.Find<GetSystemText>(shape_.version_symbol);
  get_name_ = Find<GetText>("DeviceGetName");
  get_uuid_ = Find<GetText>("DeviceGetUUID");
  get_serial_ = Find<GetText>("DeviceGetSerial");
  get_pci_info_ = Find<int(Handle, PciInfo*)>("DeviceGetPciInfo_v3");
  get_utilization_ = Find<int(Handle, Utilization*)>("DeviceGetUtilizationRates");
  if (shape_.has_memory_v2) get_memory_v2_ = Find<int(Handle, MemoryV2*)>("DeviceGetMemoryInfo_v2");
  get_memory_v1_ = Find<int(Handle, MemoryV1*)>("DeviceGetMemoryInfo");
  get_power_ = Find<GetNumber>("DeviceGetPowerUsage");
  get_enforced_power_limit_ = Find<GetNumber>("DeviceGetEnforcedPowerLimit");
  get_set_power_limit_ = Find<GetNumber>("DeviceGetPowerManagementLimit");
  get_temperature_ = Find<int(Handle, int, unsigned int*)>("DeviceGetTemperature");
  get_performance_state_ = Find<GetNumber>("DeviceGetPerformanceState");
  get_minor_number_ = Find<GetNumber>("DeviceGetMinorNumber");
  get_mig_mode_ = Find<int(Handle, unsigned int*, unsigned int*)>("DeviceGetMigMode");
  for (const char* name : {"DeviceGetComputeRunningProcesses_v3", "DeviceGetComputeRunningProcesses_v2",
                           "DeviceGetComputeRunningProcesses"}) {
    if (get_processes_ == nullptr) get_processes_ = Find<NvmlProcessCall>(name);
  }

  if (const int code = init(); code != 0) {
    return base::Error{std::string(shape_.library) + " does not start: " + Words(code)};
  }
  initialized_ = true;
  return {};
}

base::Result<SourceReading> NvmlShapedReader::Read() {
  SourceReading reading;
  const AnswerCheck check(shape_.library, &reading.notes);
  reading.source = shape_.library;
  if (const auto version = Text("library version", get_library_version_, check)) reading.source += " " + *version;
  reading.driver_version = Text("driver version", get_driver_version_, check);

  unsigned count = 0;
  if (const int code = get_count_(&count); code != 0) {
    return base::Error{std::string(shape_.library) + " cannot count the cards: " + Words(code)};
  }
  if (!check.CardCount(count)) return reading;
  for (unsigned i = 0; i < count; ++i) reading.cards.push_back(ReadCard(i));
  return reading;
}

CardReading NvmlShapedReader::ReadCard(unsigned index) const {
  CardReading card;
  card.index = static_cast<int>(index);
  const AnswerCheck check(shape_.library, &card.notes);
  Handle handle = nullptr;
  if (const int code = get_handle_(index, &handle); code != 0) {
    check.Note("cannot reach this card: " + Words(code) + ".");
    return card;
  }

  card.model = Text("name", get_name_, handle, check);
  card.uuid = Text("UUID", get_uuid_, handle, check);
  card.serial = Text("serial number", get_serial_, handle, check);
  card.pci_address = ReadPciAddress(handle, check);
  ReadMemory(handle, &card, check);

  Utilization utilization = {};
  if (get_utilization_ != nullptr && Succeeded(get_utilization_(handle, &utilization), check)) {
    card.utilization_percent = check.UtilizationPercent(utilization.card);
  }
  if (const auto power = Number(get_power_, handle, check)) {
    card.power_watts = check.PowerWatts(*power * shape_.watts_per_power_unit);
  }
  auto limit = Number(get_enforced_power_limit_, handle, check);
  if (!limit) limit = Number(get_set_power_limit_, handle, check);
  if (limit) card.power_limit_watts = check.PowerLimitWatts(*limit * shape_.watts_per_power_unit);

  unsigned temperature = 0;
  if (get_temperature_ != nullptr && Succeeded(get_temperature_(handle, kDieSensor, &temperature), check)) {
    card.temperature_celsius = check.TemperatureCelsius(static_cast<int>(temperature));
  }
  if (const auto state = Number(get_performance_state_, handle, check); state && *state <= kLastPerformanceState) {
    card.state = "P" + std::to_string(*state);
  }
  if (get_processes_ != nullptr) card.processes = ReadNvmlProcesses(get_processes_, handle, check);

  unsigned mig = 0;
  unsigned mig_after_reset = 0;
  if (get_mig_mode_ != nullptr && Succeeded(get_mig_mode_(handle, &mig, &mig_after_reset), check) &&
      mig == kMigEnabled) {
    check.Note("says that MIG is on: the card is split into instances, and the figures here are of the whole card.");
  }
  if (const auto minor = Number(get_minor_number_, handle, check); minor && *minor != index) {
    check.Note("says that the device node of this card is " + (shape_.device_node + std::to_string(*minor)) + ".");
  }
  return card;
}

std::optional<std::string> NvmlShapedReader::ReadPciAddress(Handle handle, const AnswerCheck& check) const {
  PciInfo info = {};
  if (get_pci_info_ == nullptr || !Succeeded(get_pci_info_(handle, &info), check)) return std::nullopt;
  // The string includes the function number, which the numbers lack.
  if (const auto text = check.Text("PCI address", info.bus_id, sizeof info.bus_id)) {
    if (auto address = NormalPciAddress(*text)) return address;
  }
  return check.PciAddress(info.domain, info.bus, info.device, 0);
}

void NvmlShapedReader::ReadMemory(Handle handle, CardReading* card, const AnswerCheck& check) const {
  // The second version excludes reserved memory from the used memory, as the vendor's own tool does.
  MemoryV2 v2 = {};
  if (get_memory_v2_ != nullptr && Succeeded(get_memory_v2_(handle, &v2), check)) {
    check.Memory(v2.total, v2.used, card);
    return;
  }
  MemoryV1 v1 = {};
  if (get_memory_v1_ != nullptr && Succeeded(get_memory_v1_(handle, &v1), check)) check.Memory(v1.total, v1.used, card);
}

// A failed call is normal (not every card has every sensor), unless it reports that the card itself is lost.
bool NvmlShapedReader::Succeeded(int code, const AnswerCheck& check) const {
  if (code == kCardIsLost || code == kCardNeedsReset) check.Note("says of this card: " + Words(code) + ".");
  return code == 0;
}

std::optional<unsigned> NvmlShapedReader::Number(GetNumber* call, Handle handle, const AnswerCheck& check) const {
  unsigned value = 0;
  if (call == nullptr || !Succeeded(call(handle, &value), check)) return std::nullopt;
  return value;
}

std::optional<std::string> NvmlShapedReader::Text(const char* what, GetText* call, Handle handle,
                                                  const AnswerCheck& check) const {
  char text[kTextRoom] = {};
  if (call == nullptr || !Succeeded(call(handle, text, kTextSize), check)) return std::nullopt;
  return check.Text(what, text, kTextSize);
}

std::optional<std::string> NvmlShapedReader::Text(const char* what, GetSystemText* call,
                                                  const AnswerCheck& check) const {
  char text[kTextRoom] = {};
  if (call == nullptr || call(text, kTextSize) != 0) return std::nullopt;
  return check.Text(what, text, kTextSize);
}

}  // namespace

base::Result<std::unique_ptr<LibraryReader>> OpenNvmlShaped(base::DynamicLibrary library, const NvmlShape& shape) {
  auto reader = std::make_unique<NvmlShapedReader>(std::move(library), shape);
  if (const auto started = reader->Initialize(); !started) return started.error();
  return std::unique_ptr<LibraryReader>(std::move(reader));
}

}  // namespace fulldeck::device
