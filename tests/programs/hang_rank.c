/* hang_rank NOTES [KEY=VALUE…]: a rank in C on the collectives with faults on demand, for tests/grids/hang_grid.py.
 * Each step computes, then calls all_reduce and barrier. Rank 0 reads NOTES/order ("NUMBER FAULT RANK"; FAULT: loop,
 * deadlock, stop, skip, mismatch, leave, slow:PERCENT, checkpoint:MS, end, sleep, upload:MS, fifo:MS) and broadcasts
 * it. The named rank writes NOTES/fault-NUMBER (time of CLOCK_MONOTONIC in ns, pid, the call that the others will wait
 * in and its number, by its own count) and runs the fault. SIGUSR1 ends a loop, a deadlock and a sleep, and ends an
 * upload and a fifo early. Rank 0 writes the number of steps to NOTES/steps.
 *
 *   work=US     CPU time of a step (1000)
 *   card=US     time that a step waits for a computing card (0)
 *   first=MS    duration of rank 1's first step
 *   late=RANK   that rank is stopped before it creates the group
 *   phases=1    reports its phases and steps to the board */
#define _GNU_SOURCE
#include <errno.h>
#include <fulldeck/collectives.h>
#include <fulldeck/rank_board.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char* notes;
static int own_rank;
static int world_size;
static volatile sig_atomic_t released;
static sem_t release_lock;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static int64_t Now(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void Release(int signal_number) {
  (void)signal_number;
  released = 1;
  sem_post(&release_lock);
}

static void Note(const char* name, const char* text) {
  char path[4096];
  char temporary[4200];
  snprintf(path, sizeof path, "%s/%s", notes, name);
  snprintf(temporary, sizeof temporary, "%s.%d", path, own_rank);
  FILE* file = fopen(temporary, "w");
  if (file == NULL) return;
  fputs(text, file);
  fclose(file);
  rename(temporary, path);
}

static void Work(int64_t microseconds) {
  const int64_t end = Now(CLOCK_THREAD_CPUTIME_ID) + microseconds * 1000;
  while (Now(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

static void WaitForCard(int64_t microseconds) {
  const struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, NULL);
}

static void SpinInPlace(void) {
  while (!released) {
  }
}

/* Signals other than SIGUSR1 do not end it. */
static void SleepUntilReleased(void) {
  struct timespec left = {60, 0};
  while (!released && nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

static void* HoldsTheLock(void* unused) {
  pthread_mutex_lock(&held);
  sem_post((sem_t*)unused);
  while (sem_wait(&release_lock) != 0) {
  }
  pthread_mutex_unlock(&held);
  return NULL;
}

static void WaitForTheLock(void) {
  sem_t ready;
  pthread_t holder = 0;
  sem_init(&ready, 0, 0);
  while (sem_trywait(&release_lock) == 0) {
  }
  pthread_create(&holder, NULL, HoldsTheLock, &ready);
  while (sem_wait(&ready) != 0) {
  }
  pthread_mutex_lock(&held);
  pthread_mutex_unlock(&held);
  pthread_join(holder, NULL);
}

typedef struct {
  int64_t microseconds;
  int descriptor;
} LateAnswer;

static void* AnswersLate(void* argument) {
  const LateAnswer* answer = argument;
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += answer->microseconds % 1000000 * 1000;
  end.tv_sec += answer->microseconds / 1000000 + end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  while (sem_timedwait(&release_lock, &end) != 0 && errno == EINTR) {
  }
  if (write(answer->descriptor, "x", 1) != 1) exit(1);
  return NULL;
}

/* Waits for the other end of a socket or pipe, which is silent for that time, or until SIGUSR1. */
static void WaitForAnswer(int is_socket, int64_t milliseconds) {
  int ends[2];
  char byte = 0;
  pthread_t other = 0;
  if ((is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) != 0) exit(1);
  LateAnswer answer = {milliseconds * 1000, ends[1]};
  while (sem_trywait(&release_lock) == 0) {
  }
  pthread_create(&other, NULL, AnswersLate, &answer);
  ssize_t got = 0;
  do {
    got = is_socket ? recv(ends[0], &byte, 1, 0) : read(ends[0], &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) exit(1);
  pthread_join(other, NULL);
  close(ends[0]);
  close(ends[1]);
}

/* A checkpoint: writes slowly. */
static void Checkpoint(int64_t milliseconds) {
  static char data[1 << 16];
  char path[4096];
  snprintf(path, sizeof path, "%s/checkpoint", notes);
  FILE* file = fopen(path, "w");
  const int64_t end = Now(CLOCK_MONOTONIC) + milliseconds * 1000000;
  while (file != NULL && Now(CLOCK_MONOTONIC) < end) {
    fwrite(data, 1, sizeof data, file);
    fflush(file);
    fdatasync(fileno(file));
    usleep(100000);
    fseek(file, 0, SEEK_SET);
  }
  if (file != NULL) fclose(file);
}

static int Failed(int code) {
  if (code == FULLDECK_OK) return 0;
  fprintf(stderr, "hang_rank: rank %d: %s\n", own_rank, fulldeck_error_text());
  exit(1);
}

int main(int argc, char** argv) {
  notes = argv[1];
  own_rank = (int)strtol(getenv("RANK"), NULL, 10);
  world_size = (int)strtol(getenv("WORLD_SIZE"), NULL, 10);
  int64_t work = 1000;
  int64_t card = 0;
  int64_t first = 0;
  int phases = 0;
  int late = -1;
  for (int i = 2; i < argc; ++i) {
    if (strncmp(argv[i], "work=", 5) == 0) work = strtoll(argv[i] + 5, NULL, 10);
    if (strncmp(argv[i], "card=", 5) == 0) card = strtoll(argv[i] + 5, NULL, 10);
    if (strncmp(argv[i], "first=", 6) == 0) first = strtoll(argv[i] + 6, NULL, 10);
    if (strncmp(argv[i], "late=", 5) == 0) late = (int)strtol(argv[i] + 5, NULL, 10);
    if (strcmp(argv[i], "phases=1") == 0) phases = 1;
  }
  sem_init(&release_lock, 0, 0);
  struct sigaction action = {.sa_handler = Release};
  sigaction(SIGUSR1, &action, NULL);
  fulldeck_board* board = NULL;
  if (phases) fulldeck_board_open(&board);
  char key[512];
  snprintf(key, sizeof key, "%s-%s", getenv("FULLDECK_RUN_ID"), getenv("MASTER_PORT"));
  const fulldeck_group_options options = {.struct_bytes = sizeof options,
                                          .rank = own_rank,
                                          .size = world_size,
                                          .name = "world",
                                          .key = key,
                                          .timeout_ms = 600000};
  fulldeck_group* group = NULL;
  if (own_rank == late) raise(SIGSTOP);
  Failed(fulldeck_group_create(&options, &group));
  float values[1000] = {0};
  int64_t order[4] = {0, 0, 0, 0}; /* number, fault, rank, argument */
  int64_t done = 0;
  int64_t percent = 0; /* of slowdown */
  static const char* const faults[] = {"none", "loop",       "deadlock", "stop",  "skip",   "mismatch", "leave",
                                       "slow", "checkpoint", "end",      "sleep", "upload", "fifo"};
  uint64_t calls = 0; /* of the group, by this rank */
  fulldeck_board_figures figures = {.struct_bytes = sizeof figures};
  for (uint64_t step = 1;; ++step) {
    fulldeck_board_phase(board, FULLDECK_BOARD_COMPUTE);
    if (step == 1 && own_rank == 1 && first > 0) {
      const int64_t end = Now(CLOCK_MONOTONIC) + first * 1000000;
      while (Now(CLOCK_MONOTONIC) < end) {
        void* fresh = calloc(1, 1 << 20);
        memset(fresh, 1, 1 << 20);
        Work(2000);
        free(fresh);
      }
    }
    Work(work + work * percent / 100);
    if (card > 0) WaitForCard(card + card * percent / 100);
    if (own_rank == 0 && step % 8 == 0) {
      char path[4096];
      char fault[32] = "";
      long long number = 0;
      long long rank = 0;
      snprintf(path, sizeof path, "%s/order", notes);
      FILE* file = fopen(path, "r");
      // NOLINTNEXTLINE(cert-err34-c,bugprone-unchecked-string-to-number-conversion): written by the test
      if (file != NULL && fscanf(file, "%lld %31s %lld", &number, fault, &rank) == 3) {
        char* colon = strchr(fault, ':');
        order[3] = colon != NULL ? strtoll(colon + 1, NULL, 10) : 0;
        if (colon != NULL) *colon = '\0';
        for (size_t i = 0; i < sizeof faults / sizeof faults[0]; ++i) {
          if (strcmp(fault, faults[i]) == 0) order[1] = (int64_t)i;
        }
        order[0] = number;
        order[2] = rank;
      }
      if (file != NULL) fclose(file);
      char text[64];
      snprintf(text, sizeof text, "%llu", (unsigned long long)step);
      Note("steps", text);
    }
    fulldeck_board_phase(board, FULLDECK_BOARD_COMMUNICATION);
    if (step % 8 == 0) {
      ++calls;
      Failed(fulldeck_broadcast(group, order, 4, FULLDECK_INT64, 0));
    }
    const char* fault = "none";
    if (order[0] > done) {
      done = order[0];
      fault = faults[order[1]];
      if (strcmp(fault, "end") == 0) break;
      if (own_rank != order[2]) fault = "none";
    }
    if (strcmp(fault, "none") != 0) {
      char name[64];
      char text[128];
      snprintf(name, sizeof name, "fault-%lld", (long long)done);
      snprintf(text, sizeof text, "%lld %d all_reduce %llu", (long long)Now(CLOCK_MONOTONIC), (int)getpid(),
               (unsigned long long)calls + 1);
      Note(name, text);
      released = 0;
      fulldeck_board_phase(board,
                           strcmp(fault, "checkpoint") == 0 ? FULLDECK_BOARD_CHECKPOINT : FULLDECK_BOARD_COMPUTE);
      if (strcmp(fault, "loop") == 0) SpinInPlace();
      if (strcmp(fault, "deadlock") == 0) WaitForTheLock();
      if (strcmp(fault, "stop") == 0) raise(SIGSTOP);
      if (strcmp(fault, "leave") == 0) _exit(0);
      if (strcmp(fault, "slow") == 0) percent = order[3];
      if (strcmp(fault, "checkpoint") == 0) Checkpoint(order[3]);
      if (strcmp(fault, "sleep") == 0) SleepUntilReleased();
      if (strcmp(fault, "upload") == 0) WaitForAnswer(1, order[3]);
      if (strcmp(fault, "fifo") == 0) WaitForAnswer(0, order[3]);
      fulldeck_board_phase(board, FULLDECK_BOARD_COMMUNICATION);
    }
    calls += strcmp(fault, "skip") == 0 ? 1 : 2;
    if (strcmp(fault, "mismatch") == 0) {
      Failed(fulldeck_broadcast(group, values, 1000, FULLDECK_FLOAT32, 0));
    } else if (strcmp(fault, "skip") != 0) {
      Failed(fulldeck_all_reduce(group, values, values, 1000, FULLDECK_FLOAT32, FULLDECK_SUM));
    }
    Failed(fulldeck_barrier(group));
    figures.step = step;
    fulldeck_board_step(board, &figures);
  }
  fulldeck_group_destroy(group);
  fulldeck_board_close(board);
  return 0;
}
