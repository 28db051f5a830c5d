/* A program that fails in the way that its first argument names. Compiled and run by tests/launcher/test_rank_agent.py.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*plain_handler)(int);

static sigjmp_buf back;
static volatile int zero;
static volatile int hundred = 100;

__attribute__((noinline)) void write_to(volatile int* where) {
  *where = 1;
}

__attribute__((noinline)) int endless(int depth) {
  volatile char some[256];
  some[0] = (char)depth;
  return endless(depth + 1) + some[0];
}

__attribute__((noinline)) void call_nothing(void) {
  void (*volatile nothing)(void) = (void (*)(void))16;
  nothing();
  write_to((int*)4); /* so that the call is not the last instruction */
}

__attribute__((noinline)) void smash_the_stack(void) {
  volatile long small[2];
  volatile long* volatile at = small;
  for (int i = 0; i < 64; ++i) at[i] = 0x4141414141414141;
}

static void say(const char* text) {
  if (write(1, text, strlen(text)) < 0) _exit(99);
}

static void mine(int signal_number, siginfo_t* info, void* context) {
  char text[100];
  snprintf(text, sizeof text, "mine %d %p %d\n", signal_number, info->si_addr, context != NULL);
  say(text);
  _exit(3);
}

static void plain(int signal_number) {
  char text[100];
  snprintf(text, sizeof text, "plain %d\n", signal_number);
  say(text);
}

static void other(int signal_number) {
  (void)signal_number;
}

static void jump(int signal_number) {
  (void)signal_number;
  siglongjmp(back, 1);
}

static void faults_itself(int signal_number) {
  (void)signal_number;
  say("in\n");
  write_to((int*)32);
}

static void aborts(int signal_number) {
  (void)signal_number;
  abort();
}

static void show_mask(int signal_number) {
  sigset_t now;
  sigprocmask(SIG_BLOCK, NULL, &now);
  printf("%d%d%d\n", sigismember(&now, signal_number), sigismember(&now, SIGUSR1), sigismember(&now, SIGUSR2));
}

static void install(int signal_number, plain_handler handler, int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaddset(&action.sa_mask, SIGUSR1);
  if (sigaction(signal_number, &action, NULL) != 0) exit(98);
}

static const char* name_of(plain_handler handler) {
  return handler == SIG_DFL   ? "default"
         : handler == SIG_IGN ? "ignore"
         : handler == plain   ? "plain"
         : handler == other   ? "other"
                              : "strange";
}

static const char* installed(int signal_number) {
  struct sigaction action;
  if (sigaction(signal_number, NULL, &action) != 0) exit(97);
  return name_of(action.sa_handler);
}

static void* crash_in_thread(void* address) {
  pthread_setname_np(pthread_self(), "loader-7");
  write_to(address);
  return NULL;
}

static stack_t alternate;

static void own_stack(size_t size) {
  alternate.ss_sp = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  alternate.ss_size = size;
  if (sigaltstack(&alternate, NULL) != 0) exit(96);
}

/* Prints how much of the alternate stack was used below the kernel's signal frame for this handler. */
static void measure(int signal_number, siginfo_t* info, void* context) {
  const char* at = alternate.ss_sp;
  while (*at == 0) ++at;
  stack_t now;
  sigaltstack(NULL, &now);
  if (now.ss_sp != alternate.ss_sp || now.ss_flags != SS_ONSTACK) say("another stack\n");
  char text[100];
  snprintf(text, sizeof text, "mine %d %d used %ld\n", signal_number, info != NULL, (long)((const char*)context - at));
  say(text);
  _exit(3);
}

static void install_measuring(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = measure;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, NULL);
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  setvbuf(stdout, NULL, _IONBF, 0);
#define WHEN(name) if (strcmp(what, name) == 0)
  WHEN("segv") write_to((int*)8);
  WHEN("bus") {
    FILE* file = tmpfile();
    write_to(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0));
  }
  WHEN("fpe") {
#if defined(__x86_64__)
    return hundred / zero;
#else
    raise(SIGFPE);
#endif
  }
  WHEN("ill") __builtin_trap();
  WHEN("abort") abort();
  WHEN("sent") {
    if (fork() == 0) {
      kill(getppid(), SIGABRT);
      _exit(0);
    }
    for (;;) pause();
  }
  WHEN("overflow") return endless(zero);
  WHEN("wild") call_nothing();
  WHEN("smash") smash_the_stack();
  WHEN("thread") {
    pthread_t thread;
    pthread_create(&thread, NULL, crash_in_thread, (void*)24);
    pthread_join(thread, NULL);
  }
  WHEN("threads") {
    pthread_t threads[8];
    for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, crash_in_thread, (void*)(8L * (i + 1)));
    for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  }

  WHEN("handler") {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = mine;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    write_to((int*)40);
  }
  WHEN("returns") {
    signal(SIGABRT, plain);
    raise(SIGABRT);
    say("on\n");
  }
  WHEN("reset") {
    install(SIGSEGV, plain, SA_RESETHAND);
    write_to((int*)48);
  }
  WHEN("once") {
    sysv_signal(SIGFPE, plain);
    raise(SIGFPE);
    printf("then %s\n", installed(SIGFPE));
  }
  WHEN("masks") {
    install(SIGFPE, show_mask, 0);
    raise(SIGFPE);
    install(SIGFPE, show_mask, SA_NODEFER);
    raise(SIGFPE);
  }
  WHEN("ask") {
    printf("%s", installed(SIGSEGV));
    printf(" %s", name_of(signal(SIGSEGV, plain)));
    printf(" %s", name_of(signal(SIGSEGV, other)));
    printf(" %s", name_of(signal(SIGSEGV, SIG_IGN)));
    printf(" %s", name_of(signal(SIGSEGV, SIG_DFL)));
    printf(" %s", installed(SIGSEGV));
    printf(" %s", name_of(signal(SIGUSR2, plain)));
    printf(" %s", installed(SIGUSR2));
    printf(" %d\n", sigaction(SIGKILL, &(struct sigaction){.sa_handler = plain}, NULL));
  }
  WHEN("ignore") {
    signal(SIGFPE, SIG_IGN);
    raise(SIGFPE);
    say("alive\n");
  }
  WHEN("ignore_fault") {
    signal(SIGSEGV, SIG_IGN);
    write_to((int*)56);
  }
  WHEN("recover") {
    install(SIGSEGV, jump, SA_NODEFER);
    for (volatile long i = 1; i < 4; ++i) {
      if (sigsetjmp(back, 1) == 0) write_to((int*)(i * 8));
    }
    say("recovered\n");
    abort();
  }
  WHEN("loop") { /* returns to the faulting instruction, forever */
    install(SIGSEGV, other, 0);
    alarm(2);
    write_to((int*)64);
  }
  WHEN("double") {
    install(SIGSEGV, faults_itself, 0);
    write_to((int*)72);
  }
  WHEN("abort_in_handler") {
    signal(SIGSEGV, aborts);
    write_to((int*)80);
  }
  WHEN("fork") {
    int status = 0;
    if (fork() == 0) write_to((int*)88);
    wait(&status);
    printf("child %d\n", WTERMSIG(status));
  }
  WHEN("vfork") {
    int status = 0;
    signal(SIGSEGV, plain);
    if (vfork() == 0) {
      signal(SIGSEGV, SIG_DFL);
      _exit(0);
    }
    wait(&status);
    printf("%s\n", installed(SIGSEGV));
  }
  WHEN("own_stack") {
    own_stack(64 * 1024);
    return endless(zero);
  }
  WHEN("short_stack") {
    own_stack(64 * 1024);
    install_measuring();
    return endless(zero);
  }
  WHEN("short_stack_smash") {
    own_stack(64 * 1024);
    install_measuring();
    smash_the_stack();
  }
  WHEN("env") {
    execlp("env", "env", (char*)NULL);
  }
  return 0;
}
