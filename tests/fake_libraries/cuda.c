// A library with the CUDA driver's C interface and FAKE_CUDA_CARDS cards (default 4). Card memory is host memory; the
// three programs of src/control/doctor/cards/card_kernels.h are computed here in C, whatever PTX is loaded.
//
// FAKE_CUDA sets the faults of cards, as in "1=lie,2=hang":
//   lie       one wrong number in a computation        remember  a word of memory that does not keep its value
//   hang      a computation that never ends            refuse    an error instead of a computation
//   crash     a computation that kills the process     slow      everything takes ten times longer
//   copy      a copy from the card with a wrong byte   full      no free memory
//   exclusive the card belongs to another process
//
//   FAKE_NO_SYMBOL    lacks cuLaunchKernel
//   FAKE_NO_DEVICE    initialization reports that there is no card
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  kOk = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kBadDevice = 101,
  kUnavailable = 46,
  kLaunchFailed = 719,
  kBadPtx = 218
};

#define FREE_BYTES ((size_t)16 << 20)

static int current;
static size_t held;

static int Has(const char* fault) {
  const char* faults = getenv("FAKE_CUDA");
  char wanted[64];
  snprintf(wanted, sizeof wanted, "%d=%s", current, fault);
  return faults != NULL && strstr(faults, wanted) != NULL;
}

static int CountOfCards(void) {
  const char* count = getenv("FAKE_CUDA_CARDS");
  return count != NULL ? atoi(count) : 4;
}

static void SpendTime(double seconds) {
  struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

// Long enough to stand out from the delays of a loaded machine.
static void BeSlow(void) {
  SpendTime(Has("slow") ? 0.05 : 0.002);
}

int cuInit(unsigned flags) {
  (void)flags;
#ifdef FAKE_NO_DEVICE
  return kNoDevice;
#else
  return kOk;
#endif
}

int cuDriverGetVersion(int* version) {
  *version = 12040;
  return kOk;
}

int cuGetErrorString(int code, const char** text) {
  *text = code == kOutOfMemory    ? "out of memory"
          : code == kNoDevice     ? "no CUDA-capable device is detected"
          : code == kBadDevice    ? "invalid device ordinal"
          : code == kUnavailable  ? "CUDA-capable device(s) is/are busy or unavailable"
          : code == kLaunchFailed ? "unspecified launch failure"
                                  : "another error";
  return kOk;
}

int cuGetErrorName(int code, const char** text) {
  *text = code == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_FAKE";
  return kOk;
}

int cuDeviceGetCount(int* count) {
  *count = CountOfCards();
  return kOk;
}

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= CountOfCards()) return kBadDevice;
  *device = ordinal;
  return kOk;
}

// Card N is at 0000:1N:00.0.
int cuDeviceGetByPCIBusId(int* device, const char* address) {
  unsigned domain, bus, slot, function;
  if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 || bus < 0x10) return kBadDevice;
  return cuDeviceGet(device, (int)(bus - 0x10));
}

int cuDeviceGetName(char* text, int length, int device) {
  snprintf(text, (size_t)length, "Fake H%d", 100 + device);
  return kOk;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memset(uuid, 0x11 * (device + 1), 16);
  return kOk;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? 2 : attribute == 32 ? 1 : attribute == 75 ? 9 : 0;
  return kOk;
}

int cuCtxCreate_v2(void** context, unsigned flags, int device) {
  (void)flags;
  current = device;
  *context = &current;
  return Has("exclusive") ? kUnavailable : kOk;
}

int cuCtxDestroy_v2(void* context) {
  (void)context;
  return kOk;
}

int cuCtxSynchronize(void) {
  return kOk;
}

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *total = 2 * FREE_BYTES;
  *free_bytes = FREE_BYTES - held;
  return kOk;
}

int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  if (Has("full") || bytes > FREE_BYTES - held) return kOutOfMemory;
  size_t* block = malloc(bytes + 16);
  if (block == NULL) return kOutOfMemory;
  *block = bytes;
  held += bytes;
  *address = (unsigned long long)(uintptr_t)(block + 2);
  return kOk;
}

int cuMemFree_v2(unsigned long long address) {
  size_t* block = (size_t*)(uintptr_t)address - 2;
  held -= *block;
  free(block);
  return kOk;
}

int cuMemAllocHost_v2(void** address, size_t bytes) {
  *address = malloc(bytes);
  return *address != NULL ? kOk : kOutOfMemory;
}

int cuMemFreeHost(void* address) {
  free(address);
  return kOk;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  memcpy((void*)(uintptr_t)to, from, bytes);
  BeSlow();
  return kOk;
}

int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  memcpy(to, (const void*)(uintptr_t)from, bytes);
  if (Has("copy") && bytes > 65536) ((unsigned char*)to)[4099] ^= 0x40;
  BeSlow();
  return kOk;
}

int cuModuleLoadData(void** module, const void* image) {
  *module = &current;
  return strstr(image, ".target") != NULL && strstr(image, ".version") != NULL ? kOk : kBadPtx;
}

static const char* const kNames[] = {"fulldeck_fill", "fulldeck_check", "fulldeck_compute"};

int cuModuleGetFunction(void** function, void* module, const char* name) {
  (void)module;
  for (int i = 0; i < 3; ++i) {
    if (strcmp(name, kNames[i]) == 0) {
      *function = (void*)&kNames[i];
      return kOk;
    }
  }
  return 500;
}

static uint32_t Mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

__attribute__((unused)) static void Fill(uint32_t* words, uint64_t count, uint32_t seed) {
  for (uint64_t i = 0; i < count; ++i) words[i] = Mix((uint32_t)i ^ (uint32_t)(i >> 32) ^ seed);
  if (Has("remember")) words[count / 2] &= ~0x1000u, words[count / 2 + 1] &= ~0x1000u;
}

__attribute__((unused)) static void Check(const uint32_t* words, uint64_t count, uint32_t seed, uint64_t* found) {
  for (uint64_t i = 0; i < count; ++i) {
    if (words[i] == Mix((uint32_t)i ^ (uint32_t)(i >> 32) ^ seed)) continue;
    ++found[0];
    if (i < found[1]) found[1] = i;
  }
}

__attribute__((unused)) static void Compute(uint32_t* whole, float* real, uint32_t count, uint32_t steps) {
  if (steps > 64) return;  // only the time matters, not the values
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t x = Mix(i);
    float y = (float)(i & 1023u);
    for (uint32_t k = 0; k < steps; ++k) {
      x = x * 1664525u + 1013904223u;
      y = fmaf(y, 0.75f, (float)(x >> 24));
    }
    whole[i] = x;
    real[i] = y;
  }
  if (Has("lie")) real[count - 1] += 0.5f;
}

#ifndef FAKE_NO_SYMBOL
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
  if (Has("refuse")) return kLaunchFailed;
  if (Has("crash")) abort();
  while (Has("hang")) pause();
  BeSlow();
  const int which = (int)((const char* const*)function - kNames);
  uint32_t* const first = (uint32_t*)(uintptr_t) * (unsigned long long*)arguments[0];
  if (which == 0) Fill(first, *(uint64_t*)arguments[1], *(uint32_t*)arguments[2]);
  if (which == 1) {
    Check(first, *(uint64_t*)arguments[1], *(uint32_t*)arguments[2],
          (uint64_t*)(uintptr_t) * (unsigned long long*)arguments[3]);
  }
  if (which == 2) {
    Compute(first, (float*)(uintptr_t) * (unsigned long long*)arguments[1], *(uint32_t*)arguments[2],
            *(uint32_t*)arguments[3]);
  }
  return kOk;
}
#endif
