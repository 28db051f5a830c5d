#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/libraries/library_answers.h"
#include "device/libraries/library_reader.h"

namespace fulldeck::device {
namespace {

// Layouts and units from the vendor's public reference of DCMI, for 64-bit Linux. What it calls a card is a board
// with one or more chips; every chip is a card in fulldeck.
struct ChipInfo {
  char type[32], name[32], version[32];
  unsigned int core_count;
};
static_assert(sizeof(ChipInfo) == 100);

struct PciInfo {
  unsigned int vendor_id, subsystem_vendor_id, device_id, subsystem_device_id;
  int domain;
  unsigned int bus, device, function;
  unsigned char reserved[32];
};
static_assert(sizeof(PciInfo) == 64);

struct BoardLabel {
  char product[256], model[256], manufacturer[256], date[256], serial[256];
};
static_assert(sizeof(BoardLabel) == 1280);

struct DieId {
  unsigned int words[5];
};
static_assert(sizeof(DieId) == 20);

struct Memory {
  unsigned long long total_mib;
  unsigned int frequency_mhz;
  unsigned long long used_mib;
  int temperature_celsius;
  unsigned int bandwidth_percent;
};
static_assert(sizeof(Memory) == 32);

struct Process {
  int pid;
  unsigned long memory_bytes;
};
static_assert(sizeof(Process) == 16);

constexpr int kMaxBoards = 64;
constexpr int kMaxChipsOnABoard = 16;
constexpr int kMaxProcesses = 32;
constexpr int kUtilizationOfAiCores = 2;
constexpr int kNpuDevice = 0;  // the others on a board are its microcontroller and its control processor
constexpr int kVirtualDie = 1;
constexpr double kWattsPerPowerUnit = 0.1;
constexpr unsigned kTextSize = 64;

constexpr CodeMeaning kCodes[] = {
    {-8001, "an argument was refused"},
    {-8002, "no permission; run as root, or as a member of the driver's group"},
    {-8003, "a memory operation failed"},
    {-8004, "a checked function of the C library failed"},
    {-8005, "internal error"},
    {-8006, "it took too long"},
    {-8007, "the number of the card was refused"},
    {-8008, "the card does not exist"},
    {-8009, "the driver refused the request"},
    {-8010, "a message to the card could not be sent"},
    {-8011, "the card did not answer a message"},
    {-8012, "the card is not ready"},
    {-8013, "not supported inside a container"},
    {-8014, "a file could not be read or written"},
    {-8015, "the reset failed"},
    {-8016, "it was called off"},
    {-8017, "the card's firmware is being upgraded"},
    {-8020, "the resource is in use"},
    {-8255, "this card does not support it"},
};

constexpr CodeMeaning kHealth[] = {{0, "OK"}, {1, "Warning"}, {2, "Alarm"}, {3, "Critical"}};

class DcmiReader : public LibraryReader {
 public:
  explicit DcmiReader(base::DynamicLibrary library) : library_(std::move(library)) {}

  base::Result<void> Initialize();
  base::Result<SourceReading> Read() override;

 private:
  struct Chip {
    int board, number;
  };
  using GetNumber = int(int, int, int*);

  std::optional<int> ChipsOnBoard(int board, const AnswerCheck& check) const;
  CardReading ReadChip(Chip chip, int chips_on_board) const;
  void ReadIdentity(Chip chip, int chips_on_board, CardReading* card, const AnswerCheck& check) const;
  std::optional<std::vector<ProcessOnCard>> ReadProcesses(Chip chip, const AnswerCheck& check) const;
  std::optional<std::string> SystemText(const char* what, const char* symbol, const AnswerCheck& check) const;

  base::DynamicLibrary library_;

  int (*get_boards_)(int*, int*, int) = nullptr;
  int (*get_ids_on_board_)(int, int*, int*, int*) = nullptr;
  int (*get_chip_count_)(int, int*) = nullptr;
  GetNumber* get_kind_ = nullptr;
  int (*get_logic_id_)(int*, int, int) = nullptr;
  int (*get_chip_info_)(int, int, ChipInfo*) = nullptr;
  int (*get_pci_info_)(int, int, PciInfo*) = nullptr;
  int (*get_label_)(int, BoardLabel*) = nullptr;
  int (*get_die_)(int, int, int, DieId*) = nullptr;
  int (*get_memory_)(int, int, Memory*) = nullptr;
  int (*get_utilization_)(int, int, int, unsigned int*) = nullptr;
  GetNumber* get_power_ = nullptr;
  GetNumber* get_temperature_ = nullptr;
  int (*get_health_)(int, int, unsigned int*) = nullptr;
  int (*get_processes_)(int, int, Process*, int*) = nullptr;
};

base::Result<void> DcmiReader::Initialize() {
  const auto init = library_.Find<int()>("dcmi_init");
  get_boards_ = library_.Find<int(int*, int*, int)>("dcmi_get_card_list");
  if (get_boards_ == nullptr) get_boards_ = library_.Find<int(int*, int*, int)>("dcmi_get_card_num_list");
  get_ids_on_board_ = library_.Find<int(int, int*, int*, int*)>("dcmi_get_device_id_in_card");
  get_chip_count_ = library_.Find<int(int, int*)>("dcmi_get_device_num_in_card");
  if (init == nullptr) return MissingFunction(library_.path(), "dcmi_init");
  if (get_boards_ == nullptr) return MissingFunction(library_.path(), "dcmi_get_card_list");
  if (get_ids_on_board_ == nullptr && get_chip_count_ == nullptr) {
    return MissingFunction(library_.path(), "dcmi_get_device_id_in_card");
  }

  get_kind_ = library_.Find<GetNumber>("dcmi_get_device_type");
  get_logic_id_ = library_.Find<int(int*, int, int)>("dcmi_get_device_logic_id");
  get_chip_info_ = library_.Find<int(int, int, ChipInfo*)>("dcmi_get_device_chip_info");
  get_pci_info_ = library_.Find<int(int, int, PciInfo*)>("dcmi_get_device_pcie_info_v2");
  get_label_ = library_.Find<int(int, BoardLabel*)>("dcmi_get_card_elabel_v2");
  get_die_ = library_.Find<int(int, int, int, DieId*)>("dcmi_get_device_die_v2");
  get_memory_ = library_.Find<int(int, int, Memory*)>("dcmi_get_device_hbm_info");
  get_utilization_ = library_.Find<int(int, int, int, unsigned int*)>("dcmi_get_device_utilization_rate");
  get_power_ = library_.Find<GetNumber>("dcmi_get_device_power_info");
  get_temperature_ = library_.Find<GetNumber>("dcmi_get_device_temperature");
  get_health_ = library_.Find<int(int, int, unsigned int*)>("dcmi_get_device_health");
  get_processes_ = library_.Find<int(int, int, Process*, int*)>("dcmi_get_device_resource_info");

  if (const int code = init(); code != 0) {
    return base::Error{"DCMI does not start: " + DescribeCode(kCodes, code)};
  }
  return {};
}

base::Result<SourceReading> DcmiReader::Read() {
  SourceReading reading;
  const AnswerCheck check("DCMI", &reading.notes);
  reading.source = "DCMI";
  if (const auto version = SystemText("library version", "dcmi_get_dcmi_version", check)) {
    reading.source += " " + *version;
  }
  reading.driver_version = SystemText("driver version", "dcmi_get_driver_version", check);

  // Room for more boards than the call is allowed to write.
  std::vector<int> boards(kMaxCardsPerHost);
  int count = 0;
  if (const int code = get_boards_(&count, boards.data(), kMaxBoards); code != 0) {
    return base::Error{"DCMI cannot count the cards: " + DescribeCode(kCodes, code)};
  }
  if (!check.CardCount(static_cast<std::uint64_t>(static_cast<std::int64_t>(count)))) return reading;
  boards.resize(static_cast<std::size_t>(count));
  for (const int board : boards) {
    const auto chips = ChipsOnBoard(board, check);
    for (int number = 0; number < chips.value_or(0); ++number) {
      int kind = kNpuDevice;
      if (get_kind_ != nullptr && get_kind_(board, number, &kind) == 0 && kind != kNpuDevice) continue;
      reading.cards.push_back(ReadChip({board, number}, *chips));
    }
  }
  return reading;
}

std::optional<int> DcmiReader::ChipsOnBoard(int board, const AnswerCheck& check) const {
  int chips = 0;
  int microcontroller = -1;
  int control_processor = -1;
  int code = -8255;
  if (get_ids_on_board_ != nullptr) code = get_ids_on_board_(board, &chips, &microcontroller, &control_processor);
  if (code != 0 && get_chip_count_ != nullptr) code = get_chip_count_(board, &chips);
  const std::string which = "board " + std::to_string(board);
  if (code != 0) {
    check.Note("cannot count the chips of " + which + ": " + DescribeCode(kCodes, code) + ".");
    return std::nullopt;
  }
  if (chips < 0 || chips > kMaxChipsOnABoard) {
    check.Note("counts " + std::to_string(chips) + " chips on " + which + ", which cannot be; they are left out.");
    return std::nullopt;
  }
  return chips;
}

CardReading DcmiReader::ReadChip(Chip chip, int chips_on_board) const {
  CardReading card;
  const AnswerCheck check("DCMI", &card.notes);
  ReadIdentity(chip, chips_on_board, &card, check);

  Memory memory = {};
  if (get_memory_ != nullptr && get_memory_(chip.board, chip.number, &memory) == 0) {
    // Beyond 2^43 MiB the product would wrap around to a plausible value.
    constexpr unsigned long long kMaxMib = 1ull << 43;
    check.Memory(std::min(memory.total_mib, kMaxMib) << 20, std::min(memory.used_mib, kMaxMib) << 20, &card);
  }
  unsigned int percent = 0;
  if (get_utilization_ != nullptr && get_utilization_(chip.board, chip.number, kUtilizationOfAiCores, &percent) == 0) {
    card.utilization_percent = check.UtilizationPercent(percent);
  }
  int power = 0;
  if (get_power_ != nullptr && get_power_(chip.board, chip.number, &power) == 0) {
    card.power_watts = check.PowerWatts(power * kWattsPerPowerUnit);
  }
  int temperature = 0;
  if (get_temperature_ != nullptr && get_temperature_(chip.board, chip.number, &temperature) == 0) {
    card.temperature_celsius = check.TemperatureCelsius(temperature);
  }
  unsigned int health = 0;
  if (get_health_ != nullptr && get_health_(chip.board, chip.number, &health) == 0) {
    for (const CodeMeaning& meaning : kHealth) {
      if (static_cast<unsigned int>(meaning.code) == health) card.state = meaning.words;
    }
    if (health == ~0u) check.Note("says that this card no longer exists.");
  }
  card.processes = ReadProcesses(chip, check);
  return card;
}

void DcmiReader::ReadIdentity(Chip chip, int chips_on_board, CardReading* card, const AnswerCheck& check) const {
  int index = 0;
  if (get_logic_id_ != nullptr && get_logic_id_(&index, chip.board, chip.number) == 0) {
    if (index >= 0 && static_cast<std::uint64_t>(index) < kMaxCardsPerHost) {
      card->index = index;
    } else {
      check.Note("gives this card the number " + std::to_string(index) + ", which cannot be; it is left out.");
    }
  }
  ChipInfo chip_info = {};
  if (get_chip_info_ != nullptr && get_chip_info_(chip.board, chip.number, &chip_info) == 0) {
    card->model = check.Text("name", chip_info.name, sizeof chip_info.name);
  }
  PciInfo pci = {};
  if (get_pci_info_ != nullptr && get_pci_info_(chip.board, chip.number, &pci) == 0) {
    card->pci_address = check.PciAddress(static_cast<unsigned int>(pci.domain), pci.bus, pci.device, pci.function);
  }
  // The label belongs to the board: on a board with several chips, all of them would get the same serial number.
  BoardLabel label = {};
  if (chips_on_board == 1 && get_label_ != nullptr && get_label_(chip.board, &label) == 0) {
    card->serial = check.Text("serial number", label.serial, sizeof label.serial);
  }
  DieId die = {};
  if (get_die_ != nullptr && get_die_(chip.board, chip.number, kVirtualDie, &die) == 0 && die.words[0] != 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%08X-%08X-%08X-%08X-%08X", die.words[0], die.words[1], die.words[2], die.words[3],
                  die.words[4]);
    card->uuid = text;
  }
}

std::optional<std::vector<ProcessOnCard>> DcmiReader::ReadProcesses(Chip chip, const AnswerCheck& check) const {
  // Four times what the interface promises to write.
  std::vector<Process> entries(std::size_t{4} * kMaxProcesses);
  int count = 0;
  if (get_processes_ == nullptr || get_processes_(chip.board, chip.number, entries.data(), &count) != 0) {
    return std::nullopt;
  }
  if (count < 0 || count > kMaxProcesses) {
    check.Note("lists " + std::to_string(count) + " processes, which cannot be; they are left out.");
    return std::nullopt;
  }
  std::vector<ProcessOnCard> processes;
  for (int i = 0; i < count; ++i) {
    const Process& entry = entries[static_cast<std::size_t>(i)];
    if (const auto pid = check.ProcessId(entry.pid)) processes.push_back({*pid, entry.memory_bytes});
  }
  return processes;
}

std::optional<std::string> DcmiReader::SystemText(const char* what, const char* symbol,
                                                  const AnswerCheck& check) const {
  const auto call = library_.Find<int(char*, unsigned int)>(symbol);
  char text[kTextRoom] = {};
  if (call == nullptr || call(text, kTextSize) != 0) return std::nullopt;
  return check.Text(what, text, kTextSize);
}

}  // namespace

base::Result<std::unique_ptr<LibraryReader>> OpenDcmi(base::DynamicLibrary library) {
  auto reader = std::make_unique<DcmiReader>(std::move(library));
  if (const auto started = reader->Initialize(); !started) return started.error();
  return std::unique_ptr<LibraryReader>(std::move(reader));
}

}  // namespace fulldeck::device
