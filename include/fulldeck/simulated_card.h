/* The writer's side of a simulated card: reports that a process holds memory on it and keeps it busy, so that `fulldeck
 * devices`, the launcher's checks and the monitor see what they would see on a real card. Plain C11; any program may
 * use it. It computes nothing itself.
 *
 *   fulldeck_simulated_card* card;
 *   if (fulldeck_simulated_card_open(3, &card) != 0) { puts(fulldeck_simulated_card_error()); exit(1); }
 *   if (fulldeck_simulated_card_hold(card, bytes) == -ENOMEM) { ... out of memory, as on a real card ... }
 *   uint64_t begun = fulldeck_simulated_card_begin(card);
 *   ... the work ...
 *   fulldeck_simulated_card_end(card, begun);
 *
 * Link with libfulldeck_simulated_card.so, which has no other fulldeck dependency.
 *
 * Threads: any thread may call anything on an open card; open and close are the owner's. A process that dies without
 * closing is detected by its pid and start time, and no longer counts.
 */
#ifndef FULLDECK_SIMULATED_CARD_H
#define FULLDECK_SIMULATED_CARD_H

#include <stdint.h>

#if defined(__GNUC__)
#define FULLDECK_SIMULATED_CARD_API __attribute__((visibility("default")))
#else
#define FULLDECK_SIMULATED_CARD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fulldeck_simulated_card fulldeck_simulated_card;

/* Faults of a card: bits. */
enum {
  FULLDECK_SIMULATED_IDLE = 1u << 0,    /* always reports 0 % */
  FULLDECK_SIMULATED_SLOW = 1u << 1,    /* computes slower, by the slow factor */
  FULLDECK_SIMULATED_BROKEN = 1u << 2,  /* refuses to compute */
  FULLDECK_SIMULATED_LYING = 1u << 3,   /* computes wrong sums */
  FULLDECK_SIMULATED_HUNG = 1u << 4,    /* never finishes what it begins */
  FULLDECK_SIMULATED_DROPPED = 1u << 5, /* has fallen off the bus */
};

/* How many cards this process may use: all of FULLDECK_SIMULATE, or those of the visible-device list of the
 * simulated kind (TOPS_VISIBLE_DEVICES for gcu and xla …) as it was at the process's first call here. Negative errno
 * as for open. */
FULLDECK_SIMULATED_CARD_API int fulldeck_simulated_card_count(void);
/* Opens card `index` of the visible cards, in the order of the list: with TOPS_VISIBLE_DEVICES=3, card 0 is the
 * server's card 3. 0, or a negative errno: -ENODEV no such card or dropped, -EINVAL malformed variable, -EBUSY too
 * many processes, -EIO the shared file cannot be used. */
FULLDECK_SIMULATED_CARD_API int fulldeck_simulated_card_open(int index, fulldeck_simulated_card** out);
/* The reason of this thread's last failed open; valid until its next call. */
FULLDECK_SIMULATED_CARD_API const char* fulldeck_simulated_card_error(void);
/* Releases what is held. NULL is allowed. */
FULLDECK_SIMULATED_CARD_API void fulldeck_simulated_card_close(fulldeck_simulated_card* card);

/* Counts bytes as held. 0, -ENOMEM when all processes together would hold more than the card has (two that race for
 * the last bytes may both fail), -ENODEV when the card has dropped. */
FULLDECK_SIMULATED_CARD_API int fulldeck_simulated_card_hold(fulldeck_simulated_card* card, uint64_t bytes);
FULLDECK_SIMULATED_CARD_API void fulldeck_simulated_card_release(fulldeck_simulated_card* card, uint64_t bytes);
FULLDECK_SIMULATED_CARD_API uint64_t
fulldeck_simulated_card_memory(const fulldeck_simulated_card* card); /* total bytes of the card */

/* One operation: pass the value that begin returns to the matching end. */
FULLDECK_SIMULATED_CARD_API uint64_t fulldeck_simulated_card_begin(fulldeck_simulated_card* card);
FULLDECK_SIMULATED_CARD_API void fulldeck_simulated_card_end(fulldeck_simulated_card* card, uint64_t begun);

/* Current faults of the card: those of FULLDECK_SIMULATE and those set at run time. */
FULLDECK_SIMULATED_CARD_API uint32_t fulldeck_simulated_card_faults(const fulldeck_simulated_card* card);
FULLDECK_SIMULATED_CARD_API double fulldeck_simulated_card_slow_factor(const fulldeck_simulated_card* card);
/* Sets the faults of a running card, for every process immediately; 0 clears what was set this way. */
FULLDECK_SIMULATED_CARD_API void fulldeck_simulated_card_set_faults(fulldeck_simulated_card* card, uint32_t faults,
                                                                    double slow_factor);

#ifdef __cplusplus
}
#endif

#endif
