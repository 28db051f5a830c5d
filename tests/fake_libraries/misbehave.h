// Faults of a vendor's library during its initialization, selected when the fake is compiled. Included by every fake,
// so that all vendors are tested with the same faults.
//
//   FAKE_SEGFAULT  writes to address 0
//   FAKE_HANG      never returns
//   FAKE_EXIT      exits the process successfully
//   FAKE_CHATTY    writes to standard output and standard error, then continues
//   FAKE_SIGNALS   handles SIGUSR1 and SIGUSR2 and raises one of them, then continues
//
// FAKE_NONSENSE, FAKE_TROUBLED and the others change later results; each fake describes them.
#ifndef FULLDECK_TESTS_FAKE_LIBRARIES_MISBEHAVE_H_
#define FULLDECK_TESTS_FAKE_LIBRARIES_MISBEHAVE_H_

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef FAKE_SIGNALS
static volatile sig_atomic_t signals_taken;
static void TakeSignal(int number) {
  (void)number;
  signals_taken = signals_taken + 1;
}
#endif

static inline void Misbehave(void) {
#if defined(FAKE_SEGFAULT)
  volatile int* volatile nowhere = NULL;
  *nowhere = 1;
#elif defined(FAKE_HANG)
  for (;;) pause();
#elif defined(FAKE_EXIT)
  exit(0);
#elif defined(FAKE_CHATTY)
  printf("{\"fake\": \"this line must not reach the table\"}\n");
  fflush(stdout);
  fprintf(stderr, "fake library: initialised in 0.3 ms\n");
#elif defined(FAKE_SIGNALS)
  signal(SIGUSR1, TakeSignal);
  signal(SIGUSR2, SIG_IGN);
  raise(SIGUSR1);
#endif
}

// Fills `size` bytes, more than the interface specifies, without a terminator.
static inline void WriteTextWithoutEnd(char* text, size_t size) {
  memset(text, 'x', size);
}

#endif  // FULLDECK_TESTS_FAKE_LIBRARIES_MISBEHAVE_H_
