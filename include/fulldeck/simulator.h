/* The simulated cards of FULLDECK_SIMULATE as a device of torch: libfulldeck_sim.so, loaded as a vendor's library is,
 * into a process that has torch loaded. docs/simulated-accelerator.md says what such a card can do.
 *
 *   void* library = dlopen("libfulldeck_sim.so", RTLD_NOW | RTLD_GLOBAL);
 *   if (fulldeck_torch_plugin_init() != 0) { puts(fulldeck_torch_plugin_error()); exit(1); }
 *   ... torch::randn({2, 3}, torch::Device("gcu:3")) ...
 *
 * The first two functions are the door of every torch plugin: whoever loads a library calls fulldeck_torch_plugin_init
 * if it is there. A vendor's library has none, and registers itself when it is loaded. Loading libfulldeck_sim.so alone
 * changes nothing.
 *
 * Threads: any thread may call anything; the first init must be over before tensors are made. The library is never
 * unloaded.
 */
#ifndef FULLDECK_SIMULATOR_H
#define FULLDECK_SIMULATOR_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FULLDECK_SIMULATOR_API __attribute__((visibility("default")))
#else
#define FULLDECK_SIMULATOR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Makes torch's PrivateUse1 device the simulated cards. 0, also when called again; else an errno, and nothing was
 * changed: ENODEV FULLDECK_SIMULATE is not set or names a kind that torch cannot be given, EINVAL it is malformed,
 * EBUSY another library has taken the device, EPROTO torch refused. */
FULLDECK_SIMULATOR_API int fulldeck_torch_plugin_init(void);
/* Why the last init failed, as a sentence; empty when none did. Valid as long as the process. */
FULLDECK_SIMULATOR_API const char* fulldeck_torch_plugin_error(void);

/* What torch calls the cards ("gcu"), and how many there are; "" and 0 before a successful init. */
FULLDECK_SIMULATOR_API const char* fulldeck_simulator_name(void);
FULLDECK_SIMULATOR_API int fulldeck_simulator_cards(void);

typedef struct {
  uint64_t held; /* by this process, in bytes */
  uint64_t peak; /* the most that it held since the last reset */
  uint64_t free; /* of the card, whoever holds the rest */
  uint64_t total;
} fulldeck_simulator_figures;
/* 0, or ENODEV when there is no such card. */
FULLDECK_SIMULATOR_API int fulldeck_simulator_memory(int card, fulldeck_simulator_figures* out);
FULLDECK_SIMULATOR_API void fulldeck_simulator_reset_peak(int card);

/* The generator of a card: its random numbers. The state is a sequence of bytes of a fixed length: get writes it when
 * `capacity` is enough, and returns its length, 0 when there is no such card; set takes what get gave, else EINVAL. */
FULLDECK_SIMULATOR_API int fulldeck_simulator_set_seed(int card, uint64_t seed);
FULLDECK_SIMULATOR_API uint64_t fulldeck_simulator_seed(int card);
FULLDECK_SIMULATOR_API size_t fulldeck_simulator_get_state(int card, void* out, size_t capacity);
FULLDECK_SIMULATOR_API int fulldeck_simulator_set_state(int card, const void* state, size_t bytes);

/* One line "CALLS native|fallback OPERATOR\n" for each operator that ran on a card since the start or the last reset.
 * Writes up to `capacity` bytes with the closing zero, and returns the length of the whole text without it. */
FULLDECK_SIMULATOR_API size_t fulldeck_simulator_counts(char* out, size_t capacity);
FULLDECK_SIMULATOR_API void fulldeck_simulator_reset_counts(void);

#ifdef __cplusplus
}
#endif

#endif
