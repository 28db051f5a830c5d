// A library with NVML's C interface and 8 cards, which exist only in the tables below.
//
//   FAKE_NO_SYMBOL   lacks nvmlDeviceGetCount_v2
//   FAKE_NOT_LOADED  initialization reports that there is no driver
//   FAKE_NONSENSE    2 cards with unterminated strings and invalid numbers
//   FAKE_TOO_MANY    counts 4,000,000,000 cards
//   FAKE_TROUBLED    cards with faults: 2 has no handle, 3 is lost while it is read, 4 has MIG on and no utilization,
//                    5 has no power reading, 6 has a different device node; 1 has had memory errors, 2 has no spare
//                    rows left
//   FAKE_OLD         an old driver: the first form of memory and of the list of processes, and few other calls
//   FAKE_R535        a list of processes with longer entries under the same name
//   FAKE_IXML        Iluvatar's copy of the interface: power in watts
#include <stdint.h>

#include "misbehave.h"

enum { kOk = 0, kNotSupported = 3, kTooSmall = 7, kNotLoaded = 9, kLost = 15 };

struct Card {
  const char* bus_id;
  unsigned utilisation, milliwatts, celsius, state;
  unsigned long long used;
};

#define MIB(n) ((n)*1048576ull)

static const unsigned long long kTotal = MIB(143771), kReserved = MIB(618);
static const struct Card kCards[8] = {
    {"00000000:1B:00.0", 97, 412345, 61, 0, MIB(71000)},
    {"00000000:2C:00.0", 100, 698000, 70, 0, MIB(140001)},
    {"00000000:3D:00.0", 0, 76500, 30, 0, 0},
    {"00000000:4E:00.0", 0, 77000, 31, 0, MIB(4)},
    {"00000000:9B:00.0", 12, 120000, 40, 2, MIB(512)},
    {"00000000:AC:00.0", 34, 230000, 45, 8, MIB(1024)},
    {"00000000:BD:00.0", 56, 340000, 50, 0, MIB(2048)},
    {"00000001:CE:00.0", 78, 450000, 55, 0, MIB(4096)},
};

typedef void* Device;

static unsigned IndexOf(Device device) {
  return (unsigned)((uintptr_t)device - 1);
}
static const struct Card* CardOf(Device device) {
  return &kCards[IndexOf(device) % 8];
}

// Common start of every call on a card.
static int Reach(Device device) {
#ifdef FAKE_TROUBLED
  if (IndexOf(device) == 3) return kLost;
#endif
  (void)device;
  return kOk;
}
#define REACH(device) \
  if (Reach(device) != kOk) return Reach(device)

static int PutText(char* text, unsigned length, const char* format, unsigned number) {
#ifdef FAKE_NONSENSE
  (void)format, (void)number;
  WriteTextWithoutEnd(text, length + 100);
#else
  snprintf(text, length, format, number);
#endif
  return kOk;
}

int nvmlInit_v2(void) {
  Misbehave();
#ifdef FAKE_NOT_LOADED
  return kNotLoaded;
#else
  return kOk;
#endif
}

int nvmlShutdown(void) {
  return kOk;
}

const char* nvmlErrorString(int code) {
  return code == 77 ? "no coffee" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return PutText(text, length, "580.%u.07", 159);
}
int nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return PutText(text, length, "13.580.%u", 159);
}

#ifndef FAKE_NO_SYMBOL
int nvmlDeviceGetCount_v2(unsigned* count) {
#if defined(FAKE_TOO_MANY)
  *count = 4000000000u;
#elif defined(FAKE_NONSENSE)
  *count = 2;
#else
  *count = 8;
#endif
  return kOk;
}
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
#ifdef FAKE_TROUBLED
  if (index == 2) return kLost;
#endif
  *device = (Device)((uintptr_t)index + 1);
  return kOk;
}

int nvmlDeviceGetName(Device device, char* text, unsigned length) {
  REACH(device);
#ifdef FAKE_IXML
  return PutText(text, length, "Iluvatar BI-V%u", 150);
#else
  return PutText(text, length, "NVIDIA H%u", 200);
#endif
}

int nvmlDeviceGetUUID(Device device, char* text, unsigned length) {
  REACH(device);
  return PutText(text, length, "GPU-6a8b4e5c-0000-4000-8000-00000000000%u", IndexOf(device));
}

int nvmlDeviceGetMemoryInfo(Device device, unsigned long long* total_free_used) {
  REACH(device);
  const unsigned long long used = CardOf(device)->used + kReserved;
  total_free_used[0] = kTotal;
  total_free_used[1] = kTotal - used;
  total_free_used[2] = used;
  return kOk;
}

int nvmlDeviceGetUtilizationRates(Device device, unsigned* card_and_memory) {
  REACH(device);
  card_and_memory[0] = CardOf(device)->utilisation;
  card_and_memory[1] = 1;
#if defined(FAKE_NONSENSE)
  card_and_memory[0] = 4294967295u;
#elif defined(FAKE_TROUBLED)
  if (IndexOf(device) == 4) return kNotSupported;
#endif
  return kOk;
}

int nvmlDeviceGetPowerUsage(Device device, unsigned* power) {
  REACH(device);
  *power = CardOf(device)->milliwatts;
#if defined(FAKE_NONSENSE)
  *power = 4294967295u;
#elif defined(FAKE_IXML)
  *power /= 1000;
#elif defined(FAKE_TROUBLED)
  if (IndexOf(device) == 5) return kNotSupported;
#endif
  return kOk;
}

// One process on card 0 has unknown memory; card 1 has more processes than the caller's first buffer holds.
static unsigned ProcessCount(Device device) {
  return IndexOf(device) == 0 ? 2 : IndexOf(device) == 1 ? 70 : 0;
}

struct Process {
  unsigned pid;
  unsigned long long memory;
#ifndef FAKE_OLD
  unsigned instance, compute_instance;
#endif
#ifdef FAKE_R535
  unsigned long long protected_memory;
#endif
};

static int PutProcesses(Device device, unsigned* count, struct Process* processes) {
  REACH(device);
  const unsigned room = *count;
  *count = ProcessCount(device);
#ifdef FAKE_NONSENSE
  *count = 4000000000u;
  return kOk;
#endif
  if (room < *count) return kTooSmall;
  for (unsigned i = 0; i < *count; ++i) {
    struct Process process;
    memset(&process, 0xff, sizeof process);
    process.pid = 4100 + i;
    process.memory = IndexOf(device) == 0 && i == 1 ? ~0ull : MIB(2000) + i;
    processes[i] = process;
  }
  return kOk;
}

#ifdef FAKE_OLD
int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, struct Process* processes) {
  return PutProcesses(device, count, processes);
}
#else
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, struct Process* processes) {
  return PutProcesses(device, count, processes);
}

int nvmlDeviceGetSerial(Device device, char* text, unsigned length) {
  REACH(device);
  return PutText(text, length, "165332400%04u", IndexOf(device));
}

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(Device device, struct MemoryV2* memory) {
  REACH(device);
  if (memory->version != (sizeof *memory | 2u << 24)) return 25;
  memory->total = kTotal;
  memory->reserved = kReserved;
  memory->used = CardOf(device)->used;
#ifdef FAKE_NONSENSE
  memory->used = kTotal + 1;
#endif
  memory->free = kTotal - kReserved - CardOf(device)->used;
  return kOk;
}

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(Device device, struct PciInfo* info) {
  REACH(device);
#ifdef FAKE_NONSENSE
  memset(info, 'x', sizeof *info);
#else
  memset(info, 0, sizeof *info);
  memcpy(info->bus_id, CardOf(device)->bus_id, strlen(CardOf(device)->bus_id));
#endif
  return kOk;
}

int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* limit) {
  REACH(device);
  *limit = 700000;
#if defined(FAKE_IXML)
  *limit = 350;
#endif
  return kOk;
}

int nvmlDeviceGetTemperature(Device device, int sensor, unsigned* celsius) {
  REACH(device);
  if (sensor != 0) return 2;
  *celsius = CardOf(device)->celsius;
#ifdef FAKE_NONSENSE
  *celsius = 4000;
#endif
  return kOk;
}

int nvmlDeviceGetPerformanceState(Device device, unsigned* state) {
  REACH(device);
  *state = CardOf(device)->state;
#ifdef FAKE_NONSENSE
  *state = 32;
#endif
  return kOk;
}

int nvmlDeviceGetMinorNumber(Device device, unsigned* minor_number) {
  REACH(device);
  *minor_number = IndexOf(device);
#ifdef FAKE_TROUBLED
  if (IndexOf(device) == 6) *minor_number = 3;
#endif
  return kOk;
}

// By address, card N is at 0000:1N:00.0.
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, Device* device) {
  unsigned domain, bus;
  if (sscanf(address, "%x:%x:", &domain, &bus) != 2 || bus < 0x10 || bus > 0x17) return 6;
  *device = (Device)((uintptr_t)(bus - 0x10) + 1);
  return kOk;
}

int nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, unsigned long long* count) {
  if (type != 1 || counter != 0) return kNotSupported;
  *count = 0;
#ifdef FAKE_TROUBLED
  if (IndexOf(device) == 1) *count = 3;
#endif
  (void)device;
  return kOk;
}

int nvmlDeviceGetRemappedRows(Device device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  *corrected = *uncorrected = *pending = *failed = 0;
#ifdef FAKE_TROUBLED
  if (IndexOf(device) == 2) *uncorrected = *failed = 1;
#endif
  (void)device;
  return kOk;
}

int nvmlDeviceGetMigMode(Device device, unsigned* now, unsigned* after_reset) {
  REACH(device);
  *now = *after_reset = 0;
#ifdef FAKE_TROUBLED
  if (IndexOf(device) == 4) *now = *after_reset = 1;
#endif
  return kOk;
}
#endif  // FAKE_OLD
