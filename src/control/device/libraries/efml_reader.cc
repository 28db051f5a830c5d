#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/libraries/library_answers.h"
#include "device/libraries/library_reader.h"

namespace fulldeck::device {
namespace {

// The index interface of EFML (T20, T21, S60). Layouts and units from the vendor's public exporter.
constexpr std::size_t kTextSize = 128;

struct DeviceInfo {
  char name[kTextSize];
  std::uint32_t vendor_id, device_id, domain, bus, device, function, logic_id;
};
static_assert(sizeof(DeviceInfo) == 156);

struct Memory {
  std::uint64_t total_bytes;
  std::uint32_t used_mib;
};
static_assert(sizeof(Memory) == 16);

struct Power {
  float limit_watts, watts;
};
static_assert(sizeof(Power) == 8);

struct Temperatures {
  float card, memory_0, memory_1;  // second version: card, memory, board
};
static_assert(sizeof(Temperatures) == 12);

struct Process {
  std::uint32_t pid;
  std::uint64_t card_memory, host_memory;  // the unit is not published, so neither is shown
};
static_assert(sizeof(Process) == 24);

constexpr std::uint32_t kMaxProcesses = 64;
constexpr int kArchitectureOfS60 = 2;  // the first with the second version of the temperatures

constexpr CodeMeaning kCodes[] = {
    {1, "the library is not initialised"},
    {2, "an argument was refused"},
    {3, "this card does not support it"},
    {4, "a library that it needs was not found"},
    {6, "the driver is not loaded; load the kernel module enflame, or give the container the devices /dev/gcu*"},
    {8, "an input was refused"},
    {9, "a function that it needs was not found"},
    {10, "the version of the driver cannot be read"},
    {11, "the driver is not compatible with this library; install both from one release"},
    {12, "there is no card that it supports"},
    {13, "the function is no longer offered"},
    {253, "it took too long"},
    {254, "it failed without a reason"},
};

constexpr CodeMeaning kPowerModes[] = {{1, "Active"}, {5, "Suspend"}, {7, "Sleep"}};

class EfmlReader : public LibraryReader {
 public:
  explicit EfmlReader(base::DynamicLibrary library) : library_(std::move(library)) {}

  ~EfmlReader() override {
    if (initialized_ && shutdown_ != nullptr) shutdown_();
  }

  base::Result<void> Initialize();
  base::Result<SourceReading> Read() override;

 private:
  using Index = std::uint32_t;
  using GetText = int(Index, char*);
  using GetSystemText = int(char*);
  using GetTemperatures = int(Index, Temperatures*);
  using GetUtilization = int(Index, float*);
  using GetFlag = int(Index, unsigned char*);  // a C bool, read as a byte: a broken library may write any value
  using GetCode = int(Index, int*);

  CardReading ReadCard(Index index) const;
  std::optional<std::string> Text(const char* what, GetText* call, Index index, const AnswerCheck& check) const;
  std::optional<std::string> Text(const char* what, GetSystemText* call, const AnswerCheck& check) const;
  std::optional<double> ReadTemperature(Index index, const AnswerCheck& check) const;
  std::optional<double> ReadUtilization(Index index, const AnswerCheck& check) const;
  std::optional<std::string> ReadState(Index index) const;
  std::optional<std::vector<ProcessOnCard>> ReadProcesses(Index index, const AnswerCheck& check) const;

  base::DynamicLibrary library_;
  bool initialized_ = false;

  void (*shutdown_)() = nullptr;
  int (*get_count_)(std::uint32_t*) = nullptr;
  GetSystemText* get_driver_version_ = nullptr;
  GetSystemText* get_library_version_ = nullptr;
  GetText* get_name_ = nullptr;
  GetText* get_uuid_ = nullptr;
  GetText* get_serial_ = nullptr;
  GetText* get_firmware_ = nullptr;
  int (*get_info_)(Index, DeviceInfo*) = nullptr;
  GetUtilization* get_sampled_utilization_ = nullptr;
  GetUtilization* get_utilization_ = nullptr;
  int (*get_memory_)(Index, Memory*) = nullptr;
  int (*get_power_)(Index, Power*) = nullptr;
  GetTemperatures* get_temperatures_ = nullptr;
  GetTemperatures* get_temperatures_v2_ = nullptr;
  GetCode* get_architecture_ = nullptr;
  GetCode* get_power_mode_ = nullptr;
  GetFlag* get_low_power_ = nullptr;
  GetFlag* get_health_ = nullptr;
  int (*get_processes_)(Index, std::uint32_t*, Process*) = nullptr;
};

base::Result<void> EfmlReader::Initialize() {
  const auto init = library_.Find<int(bool)>("EfmlInit");
  get_count_ = library_.Find<int(std::uint32_t*)>("EfmlGetDevCount");
  if (init == nullptr && library_.Find<void()>("efmlInit_v2") != nullptr) {
    return base::Error{library_.path() +
                           ": this EFML has only the newer interface (efmlInit_v2), whose layouts are not settled; the "
                           "cards are read from the text of efsmi instead",
                       ENOTSUP};
  }
  if (init == nullptr) return MissingFunction(library_.path(), "EfmlInit");
  if (get_count_ == nullptr) return MissingFunction(library_.path(), "EfmlGetDevCount");

  shutdown_ = library_.Find<void()>("EfmlShutdown");
  get_driver_version_ = library_.Find<GetSystemText>("EfmlGetDriverVer");
  get_library_version_ = library_.Find<GetSystemText>("EfmlGetLibVer");
  get_name_ = library_.Find<GetText>("EfmlGetDevName");
  get_uuid_ = library_.Find<GetText>("EfmlGetDevUuid");
  get_serial_ = library_.Find<GetText>("EfmlGetDevSn");
  get_firmware_ = library_.Find<GetText>("EfmlGetFwVersion");
  get_info_ = library_.Find<int(Index, DeviceInfo*)>("EfmlGetDevInfo");
  get_sampled_utilization_ = library_.Find<GetUtilization>("EfmlGetDevDtuUsageAsync");
  get_utilization_ = library_.Find<GetUtilization>("EfmlGetDevDtuUsage");
  get_memory_ = library_.Find<int(Index, Memory*)>("EfmlGetDevMem");
  get_power_ = library_.Find<int(Index, Power*)>("EfmlGetDevPwr");
  get_temperatures_ = library_.Find<GetTemperatures>("EfmlGetDevTemp");
  get_temperatures_v2_ = library_.Find<GetTemperatures>("EfmlGetDevTempV2");
  get_architecture_ = library_.Find<GetCode>("EfmlGetHwArch");
  get_power_mode_ = library_.Find<GetCode>("EfmlGetPowerMode");
  get_low_power_ = library_.Find<GetFlag>("EfmlGetDevIsLowPowerMode");
  get_health_ = library_.Find<GetFlag>("EfmlGetDevHealth");
  get_processes_ = library_.Find<int(Index, std::uint32_t*, Process*)>("EfmlGetProcessInfo");

  constexpr bool kWithoutDriver = false;
  if (const int code = init(kWithoutDriver); code != 0) {
    return base::Error{"EFML does not start: " + DescribeCode(kCodes, code)};
  }
  initialized_ = true;
  return {};
}

base::Result<SourceReading> EfmlReader::Read() {
  SourceReading reading;
  const AnswerCheck check("EFML", &reading.notes);
  reading.source = "EFML";
  if (const auto version = Text("library version", get_library_version_, check)) reading.source += " " + *version;
  reading.driver_version = Text("driver version", get_driver_version_, check);

  std::uint32_t count = 0;
  if (const int code = get_count_(&count); code != 0) {
    return base::Error{"EFML cannot count the cards: " + DescribeCode(kCodes, code)};
  }
  if (!check.CardCount(count)) return reading;
  for (Index i = 0; i < count; ++i) reading.cards.push_back(ReadCard(i));
  return reading;
}

CardReading EfmlReader::ReadCard(Index index) const {
  CardReading card;
  card.index = static_cast<int>(index);
  const AnswerCheck check("EFML", &card.notes);
  card.model = Text("name", get_name_, index, check);
  card.uuid = Text("UUID", get_uuid_, index, check);
  card.serial = Text("serial number", get_serial_, index, check);
  card.firmware = Text("firmware version", get_firmware_, index, check);

  DeviceInfo info = {};
  if (get_info_ != nullptr && get_info_(index, &info) == 0) {
    card.pci_address = check.PciAddress(info.domain, info.bus, info.device, info.function);
    if (!card.model) card.model = check.Text("name", info.name, sizeof info.name);
  }
  Memory memory = {};
  if (get_memory_ != nullptr && get_memory_(index, &memory) == 0) {
    check.Memory(memory.total_bytes, std::uint64_t{memory.used_mib} << 20, &card);
  }
  Power power = {};
  if (get_power_ != nullptr && get_power_(index, &power) == 0) {
    card.power_watts = check.PowerWatts(power.watts);
    card.power_limit_watts = check.PowerLimitWatts(power.limit_watts);
  }
  card.utilization_percent = ReadUtilization(index, check);
  card.temperature_celsius = ReadTemperature(index, check);
  card.state = ReadState(index);
  card.processes = ReadProcesses(index, check);

  unsigned char healthy = 1;
  if (get_health_ != nullptr && get_health_(index, &healthy) == 0 && healthy == 0) {
    check.Note("says that this card is not healthy; see its events in the kernel log.");
  }
  return card;
}

std::optional<double> EfmlReader::ReadUtilization(Index index, const AnswerCheck& check) const {
  for (GetUtilization* call : {get_sampled_utilization_, get_utilization_}) {
    float percent = 0;
    if (call != nullptr && call(index, &percent) == 0) return check.UtilizationPercent(percent);
  }
  return std::nullopt;
}

// The older call is correct up to T21; on S60 it may succeed with invalid values.
std::optional<double> EfmlReader::ReadTemperature(Index index, const AnswerCheck& check) const {
  GetTemperatures* first = get_temperatures_;
  GetTemperatures* second = get_temperatures_v2_;
  int architecture = 0;
  if (get_architecture_ != nullptr && get_architecture_(index, &architecture) == 0 &&
      architecture >= kArchitectureOfS60) {
    std::swap(first, second);
  }
  for (GetTemperatures* call : {first, second}) {
    Temperatures temperatures = {};
    if (call != nullptr && call(index, &temperatures) == 0) return check.TemperatureCelsius(temperatures.card);
  }
  return std::nullopt;
}

std::optional<std::string> EfmlReader::ReadState(Index index) const {
  int mode = 0;
  if (get_power_mode_ != nullptr && get_power_mode_(index, &mode) == 0) {
    for (const CodeMeaning& meaning : kPowerModes) {
      if (meaning.code == mode) return meaning.words;
    }
  }
  unsigned char low_power = 0;
  if (get_low_power_ != nullptr && get_low_power_(index, &low_power) == 0) return low_power != 0 ? "Sleep" : "Active";
  return std::nullopt;
}

std::optional<std::vector<ProcessOnCard>> EfmlReader::ReadProcesses(Index index, const AnswerCheck& check) const {
  // Four times what the interface promises to write.
  std::vector<Process> entries(std::size_t{4} * kMaxProcesses);
  std::uint32_t count = 0;
  if (get_processes_ == nullptr || get_processes_(index, &count, entries.data()) != 0) return std::nullopt;
  if (count > kMaxProcesses) {
    check.Note("lists " + std::to_string(count) + " processes, more than it can; they are left out.");
    return std::nullopt;
  }
  std::vector<ProcessOnCard> processes;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const auto pid = check.ProcessId(entries[i].pid)) processes.push_back({*pid, std::nullopt});
  }
  return processes;
}

std::optional<std::string> EfmlReader::Text(const char* what, GetText* call, Index index,
                                            const AnswerCheck& check) const {
  char text[kTextRoom] = {};
  if (call == nullptr || call(index, text) != 0) return std::nullopt;
  return check.Text(what, text, kTextSize);
}

std::optional<std::string> EfmlReader::Text(const char* what, GetSystemText* call, const AnswerCheck& check) const {
  char text[kTextRoom] = {};
  if (call == nullptr || call(text) != 0) return std::nullopt;
  return check.Text(what, text, kTextSize);
}

}  // namespace

base::Result<std::unique_ptr<LibraryReader>> OpenEfml(base::DynamicLibrary library) {
  auto reader = std::make_unique<EfmlReader>(std::move(library));
  if (const auto started = reader->Initialize(); !started) return started.error();
  return std::unique_ptr<LibraryReader>(std::move(reader));
}

}  // namespace fulldeck::device
