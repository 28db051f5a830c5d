/* stack_shapes SHAPE: programs of different shapes that wait for requests for their stacks. Prints "ready" on stdout,
 * and exits with code 0 when its standard input ends.
 *
 *   threads     a thread that waits for a condition, one that spins, one that blocks all signals, a main thread in read
 *   deaf        every thread blocks all signals
 *   stopped     stops itself
 *   forks       creates children and threads and waits for them, one after the other, all the time
 *   held        a main thread that the kernel blocks: its vfork child sleeps
 *   handler     has its own handler for the signal, which prints "mine"
 *   asks        prints the disposition of the signal before and after it installs one: d default, i ignored, h its own
 *   child       a forked child prints the disposition of the signal; then a child after exec does
 *   calls       threads in read and in a condition count the calls that a signal interrupted, and print the counts
 *   crash       crashes when its standard input ends */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int pipe_of_nothing[2];
static atomic_int ended_early;
static atomic_int over;

static int Signal(void) {
  return SIGRTMAX - 5;
}

static void Ready(void) {
  puts("ready");
  fflush(stdout);
}

/* Until standard input ends; counts reads that a signal interrupted. */
__attribute__((noinline)) void wait_for_the_end(void) {
  char byte;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 0) return;
    if (got < 0 && errno == EINTR) atomic_fetch_add(&ended_early, 1);
    if (got < 0 && errno != EINTR) exit(9);
  }
}

__attribute__((noinline)) void* wait_for_a_condition(void* unused) {
  pthread_mutex_lock(&mutex);
  while (!atomic_load(&over)) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
  return unused;
}

__attribute__((noinline)) void* spin_for_ever(void* unused) {
  while (!atomic_load(&over)) continue;
  return unused;
}

__attribute__((noinline)) void* read_nothing(void* unused) {
  char byte;
  for (;;) {
    const ssize_t got = read(pipe_of_nothing[0], &byte, 1);
    if (got == 0) return unused;
    if (got < 0 && errno == EINTR) atomic_fetch_add(&ended_early, 1);
  }
}

static void* end_at_once(void* unused) {
  return unused;
}

__attribute__((noinline)) void* make_threads(void* unused) {
  pthread_t thread;
  while (pthread_create(&thread, NULL, end_at_once, NULL) == 0) pthread_join(thread, NULL);
  return unused;
}

static void BlockAll(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
}

__attribute__((noinline)) void* block_all_and_wait(void* unused) {
  BlockAll();
  return read_nothing(unused);
}

static pthread_t Start(void* (*run)(void*), const char* name) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) != 0) exit(9);
  pthread_setname_np(thread, name);
  return thread;
}

static void Mine(int number) {
  (void)number;
  if (write(STDOUT_FILENO, "mine\n", 5) != 5) _exit(9);
}

static char Installed(void) {
  struct sigaction now;
  if (sigaction(Signal(), NULL, &now) != 0) return '?';
  return now.sa_handler == SIG_DFL ? 'd' : now.sa_handler == SIG_IGN ? 'i' : now.sa_handler == Mine ? 'h' : 'x';
}

static void Install(void (*handler)(int)) {
  struct sigaction wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.sa_handler = handler;
  wanted.sa_flags = SA_RESTART;
  sigaction(Signal(), &wanted, NULL);
}

/* From the kernel, so that the agent cannot intercept the query. */
static int CaughtBy(const char* who) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/status", who);
  FILE* const file = fopen(path, "r");
  char line[256];
  unsigned long long mask = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) sscanf(line, "SigCgt: %llx", &mask);
  if (file != NULL) fclose(file);
  return (int)(mask >> (Signal() - 1) & 1);
}

int main(int argc, char** argv) {
  const char* const shape = argc > 1 ? argv[1] : "";
  if (pipe(pipe_of_nothing) != 0) return 9;
  if (strcmp(shape, "caught") == 0) {
    printf("exec %d\n", CaughtBy("self"));
  } else if (strcmp(shape, "threads") == 0) {
    Start(wait_for_a_condition, "waits");
    Start(spin_for_ever, "spins");
    Start(block_all_and_wait, "deaf");
    Ready();
    wait_for_the_end();
  } else if (strcmp(shape, "deaf") == 0) {
    BlockAll();
    Start(wait_for_a_condition, "waits");
    Ready();
    wait_for_the_end();
  } else if (strcmp(shape, "stopped") == 0) {
    Start(wait_for_a_condition, "waits");
    Ready();
    raise(SIGSTOP);
    wait_for_the_end();
  } else if (strcmp(shape, "forks") == 0) {
    Start(make_threads, "makes");
    Ready();
    for (int i = 0; i < 10000000; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    }
  } else if (strcmp(shape, "held") == 0) {
    Ready();
    if (vfork() == 0) {
      sleep(60);
      _exit(0);
    }
  } else if (strcmp(shape, "handler") == 0) {
    Install(Mine);
    Ready();
    wait_for_the_end();
  } else if (strcmp(shape, "asks") == 0) {
    char found[8] = "";
    found[0] = Installed();
    Install(Mine);
    found[1] = Installed();
    raise(Signal());
    Install(SIG_IGN);
    found[2] = Installed();
    raise(Signal());
    Install(SIG_DFL);
    found[3] = Installed();
    found[4] = signal(Signal(), Mine) == SIG_DFL ? 'd' : 'x';
    found[5] = signal(Signal(), SIG_DFL) == Mine ? 'h' : 'x';
    found[6] = Installed();
    puts(found);
    Ready();
    wait_for_the_end();
  } else if (strcmp(shape, "child") == 0) {
    fflush(stdout);
    if (fork() == 0) {
      printf("fork %c %d\n", Installed(), CaughtBy("self"));
      fflush(stdout);
      _exit(0);
    }
    wait(NULL);
    if (fork() == 0) {
      execl("/proc/self/exe", argv[0], "caught", NULL);
      _exit(9);
    }
    wait(NULL);
    Ready();
    wait_for_the_end();
  } else if (strcmp(shape, "calls") == 0) {
    const pthread_t condition_thread = Start(wait_for_a_condition, "waits");
    Start(read_nothing, "reads");
    Ready();
    wait_for_the_end();
    atomic_store(&over, 1);
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    pthread_join(condition_thread, NULL);
    printf("ended early: %d, errno %d\n", atomic_load(&ended_early), errno);
  } else if (strcmp(shape, "crash") == 0) {
    Start(spin_for_ever, "spins");
    Ready();
    wait_for_the_end();
    *(volatile int*)8 = 1;
  } else {
    return 2;
  }
  fflush(stdout);
  _exit(0);
}
