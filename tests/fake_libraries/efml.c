// A library with EFML's index interface and 8 cards, which exist only in the tables below.
//
//   FAKE_NO_SYMBOL   lacks EfmlGetDevCount
//   FAKE_NEW_ONLY    has only the newer interface
//   FAKE_NOT_LOADED, FAKE_NOT_COMPATIBLE   initialization fails with that reason
//   FAKE_NONSENSE    2 cards with unterminated strings and invalid numbers
//   FAKE_TOO_MANY    counts 4,000,000,000 cards
//   FAKE_S60         8 S60: temperatures and power mode by the newer calls; card 7 is not healthy
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "misbehave.h"

#ifdef FAKE_NEW_ONLY

int efmlInit_v2(void) {
  return 0;
}

#else

enum { kOk = 0, kNotSupported = 3, kNotLoaded = 6, kNotCompatible = 11 };

struct Card {
  uint32_t bus, used_mib;
  float percent, watts, celsius;
  bool asleep;
};

static const struct Card kCards[8] = {
    {0x3d, 0, 0.0f, 48.0f, 30.0f, true},         {0x3e, 12000, 87.5f, 231.25f, 58.5f, false},
    {0x40, 32000, 100.0f, 298.5f, 71.0f, false}, {0x41, 0, 0.0f, 47.5f, 31.0f, true},
    {0xb1, 16, 0.0f, 49.0f, 32.0f, true},        {0xb2, 256, 1.5f, 60.0f, 33.0f, false},
    {0xb4, 1024, 25.0f, 110.0f, 41.0f, false},   {0xb5, 8192, 50.0f, 160.5f, 49.0f, false},
};

#ifdef FAKE_S60
static const char kName[] = "S%u", kSerial[] = "A07364051%04u";
static const unsigned kModel = 60;
static const uint64_t kTotalBytes = 49120ull << 20;
#else
static const char kName[] = "T%u", kSerial[] = "W2800121%04u";
static const unsigned kModel = 20;
static const uint64_t kTotalBytes = 32768ull << 20;
#endif

static int PutText(char* text, const char* format, unsigned number) {
#ifdef FAKE_NONSENSE
  (void)format, (void)number;
  WriteTextWithoutEnd(text, 300);
#else
  snprintf(text, 128, format, number);
#endif
  return kOk;
}

int EfmlInit(bool no_driver) {
  Misbehave();
  if (no_driver) return kNotSupported;
#if defined(FAKE_NOT_LOADED)
  return kNotLoaded;
#elif defined(FAKE_NOT_COMPATIBLE)
  return kNotCompatible;
#else
  return kOk;
#endif
}

void EfmlShutdown(void) {}

int EfmlGetDriverVer(char* text) {
  return PutText(text, "2.4.%u", 20230829);
}
int EfmlGetLibVer(char* text) {
  return PutText(text, "1.20.%u", 0);
}

#ifndef FAKE_NO_SYMBOL
int EfmlGetDevCount(uint32_t* count) {
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

int EfmlGetDevName(uint32_t index, char* text) {
  (void)index;
  return PutText(text, kName, kModel);
}
int EfmlGetDevUuid(uint32_t index, char* text) {
  return PutText(text, "5047433%u0d0b0a00", index);
}
int EfmlGetDevSn(uint32_t index, char* text) {
  return PutText(text, kSerial, 500 + index);
}
int EfmlGetFwVersion(uint32_t index, char* text) {
  (void)index;
  return PutText(text, "10.19.%u", 3);
}

struct DeviceInfo {
  char name[128];
  uint32_t vendor_id, device_id, domain, bus, device, function, logic_id;
};

int EfmlGetDevInfo(uint32_t index, struct DeviceInfo* info) {
  memset(info, 0, sizeof *info);
  info->vendor_id = 0x1e36;
  info->bus = kCards[index].bus;
  info->logic_id = index;
#ifdef FAKE_NONSENSE
  memset(info, 'x', sizeof *info);
#endif
  return kOk;
}

int EfmlGetDevDtuUsageAsync(uint32_t index, float* percent) {
  *percent = kCards[index].percent;
#ifdef FAKE_NONSENSE
  *percent = index == 0 ? NAN : -1.0f;
#endif
  return kOk;
}

struct Memory {
  uint64_t total_bytes;
  uint32_t used_mib;
};

int EfmlGetDevMem(uint32_t index, struct Memory* memory) {
  memory->total_bytes = kTotalBytes;
  memory->used_mib = kCards[index].used_mib;
#ifdef FAKE_NONSENSE
  if (index == 0) memory->used_mib = 4294967295u;
  if (index == 1) memory->total_bytes = ~0ull;
#endif
  return kOk;
}

struct Power {
  float limit, watts;
};

int EfmlGetDevPwr(uint32_t index, struct Power* power) {
  power->limit = 300.0f;
  power->watts = kCards[index].watts;
#ifdef FAKE_NONSENSE
  power->limit = INFINITY;
  power->watts = 1e30f;
#endif
  return kOk;
}

struct Temperatures {
  float card, memory_0, memory_1;
};

#ifdef FAKE_S60
int EfmlGetHwArch(uint32_t index, int* architecture) {
  (void)index;
  *architecture = 2;
  return kOk;
}

int EfmlGetDevTempV2(uint32_t index, struct Temperatures* temperatures) {
  *temperatures = (struct Temperatures){kCards[index].celsius, 40.0f, 41.0f};
  return kOk;
}

// On this generation the older call succeeds but returns no value.
int EfmlGetDevTemp(uint32_t index, struct Temperatures* temperatures) {
  (void)index;
  memset(temperatures, 0, sizeof *temperatures);
  return kOk;
}

int EfmlGetPowerMode(uint32_t index, int* mode) {
  *mode = kCards[index].asleep ? 7 : 1;
  return kOk;
}

int EfmlGetDevHealth(uint32_t index, bool* healthy) {
  *healthy = index != 7;
  return kOk;
}
#else
int EfmlGetDevTemp(uint32_t index, struct Temperatures* temperatures) {
  *temperatures = (struct Temperatures){kCards[index].celsius, 40.0f, 41.0f};
#ifdef FAKE_NONSENSE
  temperatures->card = index == 0 ? NAN : -400.0f;
#endif
  return kOk;
}

int EfmlGetDevIsLowPowerMode(uint32_t index, bool* asleep) {
  *asleep = kCards[index].asleep;
  return kOk;
}
#endif

struct Process {
  uint32_t pid;
  uint64_t card_memory, host_memory;
};

int EfmlGetProcessInfo(uint32_t index, uint32_t* count, struct Process* processes) {
  *count = 0;
#ifdef FAKE_NONSENSE
  *count = index == 0 ? 4000000000u : 2;
  processes[0].pid = 0;
  processes[1].pid = 4294967295u;
#else
  if (index == 1) {
    *count = 2;
    processes[0] = (struct Process){5001, 1, 2};
    processes[1] = (struct Process){5002, 3, 4};
  }
#endif
  return kOk;
}

#endif  // FAKE_NEW_ONLY
