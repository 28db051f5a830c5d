/* fault_rank KEY=VALUE…: a rank that runs through the phases init, collective, checkpoint and teardown in step with
 * the other ranks, with a fault on the way. The other ranks wait for the failed one forever, as ranks in a collective
 * do.
 *
 *   notes=DIR        the folder of its notes (must exist): rank-R holds its pid; fault holds the time of the fault in
 *                    nanoseconds of CLOCK_MONOTONIC, and the pid. Required.
 *   rank=R phase=P   which rank has the fault, and when. In `collective` it waits until all others are stuck in it.
 *   fault=F          none (default), kill, segv, abort, stop, hang, exit:CODE, signal:NUMBER, memory:MIB (touches that
 *                    much, and exits with 0 if it succeeds)
 *   until=N          the fault happens only in the attempts before N (default: in all)
 *   term=T           what every rank does on SIGTERM: die (default), ignore, save:MS (after MS milliseconds writes
 *                    saved-R, with the time at which it received the signal and the pid, and exits with 0), bomb:N
 *                    (forks, and the children fork, until N more processes exist)
 *   children=N       every rank has N children; daemons=N: children of init, in sessions of their own, that ignore
 *                    SIGTERM; left=N: children that left the process group
 *   stat=R:PATH      rank R calls stat on that file in the collective: the kernel may block it there
 *   deaf=1           children and left ones ignore SIGTERM too */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPhases = 4 };
static const char* const kPhaseNames[kPhases] = {"init", "collective", "checkpoint", "teardown"};
enum { kCollective = 1 };

/* Mapped from a file in the run's folder that is initially zero. */
struct Shared {
  // Ranks at the end of that phase; also the futex on which the others wait.
  atomic_uint arrived[kPhases];
  atomic_int bomb; /* processes that may still be forked */
};

static struct Shared* shared;
static unsigned world_size;
static unsigned own_rank;
static const char* notes;
static const char* on_term = "die";
static volatile sig_atomic_t asked_to_end;

static void Fail(const char* what) {
  fprintf(stderr, "fault_rank: %s: %s\n", what, strerror(errno));
  exit(99);
}

static const char* Option(int argc, char** argv, const char* name, const char* otherwise) {
  const size_t length = strlen(name);
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  }
  return otherwise;
}

/* The number after "word:", or -1 if `text` does not have that form. */
static long NumberOf(const char* text, const char* word) {
  const size_t length = strlen(word);
  return strncmp(text, word, length) == 0 && text[length] == ':' ? strtol(text + length + 1, NULL, 10) : -1;
}

static unsigned FromEnvironment(const char* name) {
  const char* text = getenv(name);
  if (text == NULL) {
    fprintf(stderr, "fault_rank: %s is not set\n", name);
    exit(99);
  }
  return (unsigned)strtoul(text, NULL, 10);
}

/* Atomic: a reader never sees half a note. */
static void WriteNote(const char* name, const char* text) {
  char path[PATH_MAX];
  char unfinished[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", notes, name);
  snprintf(unfinished, sizeof unfinished, "%s/.%s.%ld", notes, name, (long)getpid());
  FILE* file = fopen(unfinished, "w");
  if (file == NULL) Fail(unfinished);
  fputs(text, file);
  fclose(file);
  if (rename(unfinished, path) != 0) Fail(path);
}

/* The time in nanoseconds of CLOCK_MONOTONIC, and the pid. */
static void TimeAndPid(char* text, size_t size) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  snprintf(text, size, "%lld %ld\n", (long long)now.tv_sec * 1000000000LL + now.tv_nsec, (long)getpid());
}

static void WriteRankNote(const char* name, const char* text) {
  char whole[64];
  snprintf(whole, sizeof whole, "%s-%u", name, own_rank);
  WriteNote(whole, text);
}

static struct Shared* MapShared(void) {
  const char* folder = getenv("FULLDECK_RUN_DIR");
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/fault_rank-%u", folder != NULL ? folder : ".",
           FromEnvironment("TORCHELASTIC_RESTART_COUNT"));
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(struct Shared)) != 0) Fail(path);
  void* memory = mmap(NULL, sizeof(struct Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) Fail(path);
  close(file);
  return memory;
}

static void NoteRequest(int signal_number) {
  (void)signal_number;
  asked_to_end = 1;
}

static void ActOnTerm(void) {
  char seen[64];
  TimeAndPid(seen, sizeof seen);
  const long milliseconds = NumberOf(on_term, "save");
  if (milliseconds >= 0) {
    usleep((useconds_t)milliseconds * 1000);
    WriteRankNote("saved", seen);
    exit(0);
  }
  signal(SIGTERM, SIG_IGN);
  while (atomic_fetch_sub(&shared->bomb, 1) > 0) {
    if (fork() < 0) break; /* parent and child both continue */
  }
  for (;;) pause();
}

/* Until `count` ranks have reached the end of the phase. Waits briefly each time, because a signal may arrive just
 * before. */
static void WaitFor(int phase, unsigned count) {
  for (;;) {
    if (asked_to_end) ActOnTerm();
    const unsigned seen = atomic_load(&shared->arrived[phase]);
    if (seen >= count) return;
    const struct timespec nap = {0, 100 * 1000 * 1000};
    syscall(SYS_futex, &shared->arrived[phase], FUTEX_WAIT, seen, &nap, NULL, 0);
  }
}

static void Arrive(int phase) {
  atomic_fetch_add(&shared->arrived[phase], 1);
  syscall(SYS_futex, &shared->arrived[phase], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void Rest(int deaf) {
  signal(SIGTERM, deaf ? SIG_IGN : SIG_DFL);
  for (;;) pause();
}

static void StartCompany(int argc, char** argv) {
  const int deaf = strtol(Option(argc, argv, "deaf", "0"), NULL, 10) != 0;
  for (long i = strtol(Option(argc, argv, "children", "0"), NULL, 10); i > 0; --i) {
    if (fork() == 0) Rest(deaf);
  }
  for (long i = strtol(Option(argc, argv, "left", "0"), NULL, 10); i > 0; --i) {
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      Rest(deaf);
    }
    if (child > 0) setpgid(child, child);
  }
  for (long i = strtol(Option(argc, argv, "daemons", "0"), NULL, 10); i > 0; --i) {
    const pid_t between = fork();
    if (between == 0) {
      setsid();
      signal(SIGTERM, SIG_IGN);
      if (fork() == 0) Rest(1);
      _exit(0);
    }
    waitpid(between, NULL, 0);
  }
}

static void HaveAccident(const char* fault) {
  char text[64];
  TimeAndPid(text, sizeof text);
  WriteNote("fault", text);

  if (strcmp(fault, "kill") == 0) kill(getpid(), SIGKILL);
  volatile int* volatile nowhere = NULL;
  if (strcmp(fault, "segv") == 0) *nowhere = 1;
  if (strcmp(fault, "abort") == 0) abort();
  if (strcmp(fault, "stop") == 0) kill(getpid(), SIGSTOP);
  if (strcmp(fault, "hang") == 0) {
    for (;;) {
      if (asked_to_end) ActOnTerm();
      usleep(100 * 1000);
    }
  }
  const long code = NumberOf(fault, "exit");
  if (code >= 0) _exit((int)code);
  const long signal_number = NumberOf(fault, "signal");
  if (signal_number > 0) {
    signal((int)signal_number, SIG_DFL);
    kill(getpid(), (int)signal_number);
  }
  const long mebibytes = NumberOf(fault, "memory");
  for (long i = 0; i < mebibytes; ++i) {
    char* block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) Fail("memory");
    memset(block, 1, 1 << 20);
  }
  if (mebibytes >= 0) _exit(0);
}

static void AskForFile(const char* rank_and_path) {
  char* path = NULL;
  const unsigned long rank = strtoul(rank_and_path, &path, 10);
  struct stat facts;
  if (*path == ':' && rank == own_rank && stat(path + 1, &facts) != 0) perror("fault_rank: stat");
}

int main(int argc, char** argv) {
  notes = Option(argc, argv, "notes", NULL);
  if (notes == NULL) {
    fputs("usage: fault_rank notes=DIR [rank=R phase=P fault=F] [OPTION=VALUE…]; the source explains\n", stderr);
    return 2;
  }
  own_rank = FromEnvironment("RANK");
  world_size = FromEnvironment("WORLD_SIZE");
  shared = MapShared();

  on_term = Option(argc, argv, "term", "die");
  if (strcmp(on_term, "ignore") == 0) signal(SIGTERM, SIG_IGN);
  const long bomb = NumberOf(on_term, "bomb");
  if (bomb > 0) atomic_fetch_add(&shared->bomb, (int)bomb);
  if (bomb >= 0 || NumberOf(on_term, "save") >= 0) signal(SIGTERM, NoteRequest);
  StartCompany(argc, argv);

  char pid[32];
  snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
  WriteRankNote("rank", pid);

  const char* fault = Option(argc, argv, "fault", "none");
  const char* fault_phase = Option(argc, argv, "phase", "collective");
  const long until = strtol(Option(argc, argv, "until", "1000000"), NULL, 10);
  const int mine = strcmp(fault, "none") != 0 && own_rank == strtoul(Option(argc, argv, "rank", "0"), NULL, 10) &&
                   (long)FromEnvironment("TORCHELASTIC_RESTART_COUNT") < until;
  for (int phase = 0; phase < kPhases; ++phase) {
    if (mine && strcmp(fault_phase, kPhaseNames[phase]) == 0) {
      if (phase == kCollective) WaitFor(phase, world_size - 1);
      fprintf(stderr, "fault_rank: rank %u: %s in %s\n", own_rank, fault, fault_phase);
      HaveAccident(fault);
    }
    Arrive(phase);
    if (phase == kCollective) AskForFile(Option(argc, argv, "stat", ""));
    WaitFor(phase, world_size);
  }
  return 0;
}
