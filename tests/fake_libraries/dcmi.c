// A library with DCMI's interface and 8 boards with one chip each, which exist only in the tables below.
//
//   FAKE_NO_SYMBOL  lacks the list of boards under either name
//   FAKE_NONSENSE   2 boards with unterminated strings and invalid numbers
//   FAKE_TOO_MANY   counts 2,000,000,000 boards
//   FAKE_OLD        the older names of two calls; each board has two chips and a microcontroller
//   FAKE_CONTAINER  initialization reports that it is not supported in a container
#include "misbehave.h"

enum { kOk = 0, kNotInContainer = -8013, kNotSupported = -8255 };

struct Chip {
  unsigned bus, percent, health;
  int tenths_of_watts, celsius;
  unsigned long long used_mib;
};

static const struct Chip kChips[8] = {
    {0xc1, 0, 0, 924, 41, 3384},   {0x01, 99, 0, 3105, 63, 60001}, {0xc2, 50, 1, 2007, 55, 30000},
    {0x02, 0, 0, 951, 42, 3385},   {0x81, 10, 0, 1203, 44, 4096},  {0x41, 20, 2, 1301, 45, 5120},
    {0x82, 30, 3, 1402, 46, 6144}, {0x42, 0, 0, 930, 40, 3386},
};

static int PutText(char* text, size_t size, const char* format, unsigned number) {
#ifdef FAKE_NONSENSE
  (void)format, (void)number;
  WriteTextWithoutEnd(text, size);
#else
  snprintf(text, size, format, number);
#endif
  return kOk;
}

int dcmi_init(void) {
  Misbehave();
#ifdef FAKE_CONTAINER
  return kNotInContainer;
#else
  return kOk;
#endif
}

int dcmi_get_dcmi_version(char* text, unsigned length) {
  return PutText(text, length, "24.1.%u", 3);
}
int dcmi_get_driver_version(char* text, unsigned length) {
  return PutText(text, length, "24.1.rc%u", 2);
}

#ifdef FAKE_OLD
#define LIST_OF_BOARDS dcmi_get_card_num_list
#else
#define LIST_OF_BOARDS dcmi_get_card_list
#endif

#ifndef FAKE_NO_SYMBOL
int LIST_OF_BOARDS(int* count, int* boards, int length) {
#if defined(FAKE_TOO_MANY)
  *count = 2000000000;
#elif defined(FAKE_NONSENSE)
  *count = 2;
#elif defined(FAKE_OLD)
  *count = 4;
#else
  *count = 8;
#endif
  for (int i = 0; i < *count && i < length; ++i) boards[i] = i;
  return kOk;
}
#endif

#ifdef FAKE_OLD
int dcmi_get_device_num_in_card(int board, int* count) {
  (void)board;
  *count = 3;
  return kOk;
}

int dcmi_get_device_type(int board, int chip, int* kind) {
  (void)board;
  *kind = chip == 2 ? 1 : 0;
  return kOk;
}
#else
int dcmi_get_device_id_in_card(int board, int* chips, int* microcontroller, int* processor) {
  (void)board;
  *chips = 1;
  *microcontroller = 1;
  *processor = -1;
  return kOk;
}
#endif

static int LogicId(int board, int chip) {
#ifdef FAKE_OLD
  return board * 2 + chip;
#else
  (void)chip;
  return board;
#endif
}
static const struct Chip* ChipOf(int board, int chip) {
  return &kChips[LogicId(board, chip) % 8];
}

int dcmi_get_device_logic_id(int* id, int board, int chip) {
  *id = LogicId(board, chip);
#ifdef FAKE_NONSENSE
  *id = -7;
#endif
  return kOk;
}

struct ChipInfo {
  char type[32], name[32], version[32];
  unsigned cores;
};

int dcmi_get_device_chip_info(int board, int chip, struct ChipInfo* info) {
  (void)board, (void)chip;
  info->cores = 20;
  PutText(info->type, sizeof info->type, "Ascend", 0);
  return PutText(info->name, sizeof info->name, "910B%u", 3);
}

struct PciInfo {
  unsigned vendor, subsystem_vendor, device_id, subsystem_device;
  int domain;
  unsigned bus, device, function;
  unsigned char reserved[32];
};

int dcmi_get_device_pcie_info_v2(int board, int chip, struct PciInfo* info) {
  memset(info, 0, sizeof *info);
  info->vendor = 0x19e5;
  info->bus = ChipOf(board, chip)->bus;
#ifdef FAKE_NONSENSE
  info->domain = -1;
#endif
  return kOk;
}

struct Label {
  char product[256], model[256], manufacturer[256], date[256], serial[256];
};

int dcmi_get_card_elabel_v2(int board, struct Label* label) {
  return PutText(label->serial, sizeof label->serial, "1024BK2%03u", (unsigned)board);
}

int dcmi_get_device_die_v2(int board, int chip, int kind, unsigned* words) {
  if (kind != 1) return kNotSupported;
  for (unsigned i = 0; i < 5; ++i) words[i] = 0x10u * (i + 1) + (unsigned)LogicId(board, chip);
  return kOk;
}

struct Memory {
  unsigned long long total_mib;
  unsigned frequency;
  unsigned long long used_mib;
  int celsius;
  unsigned bandwidth;
};

int dcmi_get_device_hbm_info(int board, int chip, struct Memory* memory) {
  *memory = (struct Memory){65536, 1600, ChipOf(board, chip)->used_mib, 40, 0};
#ifdef FAKE_NONSENSE
  if (board == 0) memory->used_mib = 65537;
  if (board == 1) memory->total_mib = ~0ull;
#endif
  return kOk;
}

int dcmi_get_device_utilization_rate(int board, int chip, int kind, unsigned* percent) {
  if (kind != 2) return kNotSupported;
  *percent = ChipOf(board, chip)->percent;
#ifdef FAKE_NONSENSE
  *percent = 101;
#endif
  return kOk;
}

int dcmi_get_device_power_info(int board, int chip, int* tenths) {
  *tenths = ChipOf(board, chip)->tenths_of_watts;
#ifdef FAKE_NONSENSE
  *tenths = -1;
#endif
  return kOk;
}

int dcmi_get_device_temperature(int board, int chip, int* celsius) {
  *celsius = ChipOf(board, chip)->celsius;
#ifdef FAKE_NONSENSE
  *celsius = 32767;
#endif
  return kOk;
}

int dcmi_get_device_health(int board, int chip, unsigned* health) {
  *health = ChipOf(board, chip)->health;
#ifdef FAKE_NONSENSE
  *health = board == 0 ? 9 : ~0u;
#endif
  return kOk;
}

struct Process {
  int pid;
  unsigned long bytes;
};

int dcmi_get_device_resource_info(int board, int chip, struct Process* processes, int* count) {
  *count = 0;
#ifdef FAKE_NONSENSE
  (void)chip, (void)processes;
  *count = board == 0 ? -1 : 1000;
#else
  if (LogicId(board, chip) == 1) {
    *count = 1;
    processes[0] = (struct Process){6001, 59000ul << 20};
  }
#endif
  return kOk;
}
