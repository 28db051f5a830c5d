/* The simulated cards of FULLDECK_SIMULATE as a torch device: libfulldeck_sim.so, loaded like a vendor's library into a
 * process that has torch loaded. docs/simulated-accelerator.md describes what such a card supports. It is for tests,
 * not for performance.
 *
 *   void* library = dlopen("libfulldeck_sim.so", RTLD_NOW | RTLD_GLOBAL);
 *   if (fulldeck_torch_plugin_init() != 0) { puts(fulldeck_torch_plugin_error()); exit(1); }
 *   ... torch::randn({2, 3}, torch::Device("gcu:3")) ...
 *
 * The first two functions are the entry points of a torch plugin: a loader calls fulldeck_torch_plugin_init if the
 * library has it. A vendor's library has none, and registers itself when it is loaded. Merely loading
 * libfulldeck_sim.so changes nothing.
 *
 * Threads: any thread may call anything; the first init must be complete before tensors are created. The library is
 * never unloaded.
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

/* Registers the simulated cards as torch's PrivateUse1 device. Returns 0, also when called again; otherwise an
 * errno, and nothing has changed: ENODEV FULLDECK_SIMULATE is not set or names a kind that torch cannot use, EINVAL
 * it is malformed, EBUSY another library has taken the device, EPROTO torch refused. */
FULLDECK_SIMULATOR_API int fulldeck_torch_plugin_init(void);
/* Why the last init failed, as a sentence; empty if it did not. Never freed. */
FULLDECK_SIMULATOR_API const char* fulldeck_torch_plugin_error(void);

/* Torch's name of the cards ("gcu"), and their number; "" and 0 before a successful init. */
FULLDECK_SIMULATOR_API const char* fulldeck_simulator_name(void);
FULLDECK_SIMULATOR_API int fulldeck_simulator_cards(void);

typedef struct {
  uint64_t held; /* by this process, in bytes */
  uint64_t peak; /* maximum since the last reset */
  uint64_t free; /* of the card, counting all processes */
  uint64_t total;
} fulldeck_simulator_figures;
/* 0, or ENODEV when there is no such card. */
FULLDECK_SIMULATOR_API int fulldeck_simulator_memory(int card, fulldeck_simulator_figures* out);
FULLDECK_SIMULATOR_API void fulldeck_simulator_reset_peak(int card);

/* The random number generator of a card. The state is a byte sequence of fixed length: get writes it if `capacity`
 * is sufficient and returns its length, or 0 if there is no such card; set accepts what get returned, otherwise
 * EINVAL. */
FULLDECK_SIMULATOR_API int fulldeck_simulator_set_seed(int card, uint64_t seed);
FULLDECK_SIMULATOR_API uint64_t fulldeck_simulator_seed(int card);
FULLDECK_SIMULATOR_API size_t fulldeck_simulator_get_state(int card, void* out, size_t capacity);
FULLDECK_SIMULATOR_API int fulldeck_simulator_set_state(int card, const void* state, size_t bytes);

/* One line "CALLS native|fallback OPERATOR\n" for each operator that ran on a card since the start or the last
 * reset. Writes up to `capacity` bytes including the terminating zero, and returns the length of the whole text
 * without it. */
FULLDECK_SIMULATOR_API size_t fulldeck_simulator_counts(char* out, size_t capacity);
FULLDECK_SIMULATOR_API void fulldeck_simulator_reset_counts(void);

#ifdef __cplusplus
}
#endif

#endif
