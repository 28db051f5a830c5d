/* collectives_rank KEY=VALUE…: a member of a group that makes calls through the C interface until something ends them,
 * with a fault on the way if one is requested. It reports on standard output, one line each:
 *
 *   ready                      the group is created
 *   calling                    its first call is over
 *   holding                    with hold=
 *   calls N                    it made all its calls, and all results were correct
 *   failed CODE CALL TIME AGAIN TEXT   a call failed: its number, when it returned (seconds of CLOCK_MONOTONIC),
 *                              whether a further call returned the same code (same or other), and the message
 *                              (newlines as " | ")
 *   wrong TEXT                 a result was incorrect
 *   descriptors FIRST LAST     with groups=
 *
 *   rank=R size=N key=K        required
 *   name=NAME timeout=MS       of the rendezvous, and of every call unless overridden
 *   call_timeout=MS            of the calls, from the first one or from call number hold=
 *   hold=N                     waits for SIGUSR1 before call number N (from 1)
 *   watch=connection           as on a kernel without pidfds
 *   op=OP count=N calls=N      the operation, its number of float32 elements (default all_reduce × 1000), and the
 *                              number of calls (0: until it fails). OP may be mixed: one operation after another
 *   fault=F at=N               instead of call number N (from 1): kill, stop, segv, exit, leave (destroys the group
 *                              and waits), hang (makes no call and waits); or a mismatched call: operation, type,
 *                              count, root, reduction, skipped; or abort (from another thread, while it waits in
 *                              the call)
 *   after=MS                   delay before the fault
 *   groups=N                   creates and leaves N groups, with calls= in each
 *   large=BYTES                one broadcast and one all_reduce of BYTES int8 elements */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fulldeck/collectives.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static int own_rank;
static int world_size;

static const char* Option(int argc, char** argv, const char* name, const char* otherwise) {
  const size_t length = strlen(name);
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  }
  return otherwise;
}

static uint64_t Number(int argc, char** argv, const char* name, uint64_t otherwise) {
  const char* text = Option(argc, argv, name, NULL);
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void Sleep(uint64_t milliseconds) {
  const struct timespec time = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
  nanosleep(&time, NULL);
}

static void Say(const char* text) {
  puts(text);
  fflush(stdout);
}

/* pidfd_open returns ENOSYS from now on. */
static void LosePidfds(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("collectives_rank: seccomp");
    exit(99);
  }
}

/* ---- calls ---- */

static const char* const kOperations[] = {"all_reduce", "reduce",  "broadcast",  "all_gather", "reduce_scatter",
                                          "gather",     "scatter", "all_to_all", "barrier",    "message"};
enum { kOperationCount = sizeof kOperations / sizeof kOperations[0] };

static float* input;
static float* output;

static int Wrong(const char* operation, uint64_t at, double got, double expected) {
  printf("wrong %s: element %llu is %g and should be %g\n", operation, (unsigned long long)at, got, expected);
  fflush(stdout);
  return 1;
}

/* Makes one call and checks all its results. Returns its code; 1: a wrong value, which was reported. */
static int Call(fulldeck_group* group, const char* operation, uint64_t count, uint64_t call, int root) {
  const uint64_t all = count * (uint64_t)world_size;
  const float own = (float)(own_rank + 1 + (int)(call % 5));
  const float sum =
      (float)((world_size * (world_size + 1)) / 2 + world_size * (int)(call % 5));  // NOLINT(bugprone-integer-division)
  const uint64_t in = strcmp(operation, "reduce_scatter") == 0 || strcmp(operation, "scatter") == 0 ||
                              strcmp(operation, "all_to_all") == 0
                          ? all
                          : count;
  for (uint64_t i = 0; i < in; ++i) input[i] = own;
  for (uint64_t i = 0; i < all; ++i) output[i] = -1;
  int code = 0;
  uint64_t written = 0;
  // Whether the result consists of one chunk per rank; otherwise it is the same everywhere.
  int parts = 0;
  float expected = sum;
  if (strcmp(operation, "all_reduce") == 0) {
    code = fulldeck_all_reduce(group, input, output, count, FULLDECK_FLOAT32, FULLDECK_SUM);
    written = count;
  } else if (strcmp(operation, "reduce") == 0) {
    code = fulldeck_reduce(group, input, output, count, FULLDECK_FLOAT32, FULLDECK_SUM, root);
    written = own_rank == root ? count : 0;
  } else if (strcmp(operation, "broadcast") == 0) {
    for (uint64_t i = 0; i < count; ++i) output[i] = own;
    code = fulldeck_broadcast(group, output, count, FULLDECK_FLOAT32, root);
    written = count;
    expected = (float)(root + 1 + (int)(call % 5));
  } else if (strcmp(operation, "all_gather") == 0) {
    code = fulldeck_all_gather(group, input, output, count, FULLDECK_FLOAT32);
    written = all;
    parts = 1;
  } else if (strcmp(operation, "reduce_scatter") == 0) {
    code = fulldeck_reduce_scatter(group, input, output, count, FULLDECK_FLOAT32, FULLDECK_SUM);
    written = count;
  } else if (strcmp(operation, "gather") == 0) {
    code = fulldeck_gather(group, input, output, count, FULLDECK_FLOAT32, root);
    written = own_rank == root ? all : 0;
    parts = 1;
  } else if (strcmp(operation, "scatter") == 0) {
    code = fulldeck_scatter(group, input, output, count, FULLDECK_FLOAT32, root);
    written = count;
    expected = (float)(root + 1 + (int)(call % 5));
  } else if (strcmp(operation, "all_to_all") == 0) {
    code = fulldeck_all_to_all(group, input, output, count, FULLDECK_FLOAT32);
    written = all;
    parts = 1;
  } else if (strcmp(operation, "message") == 0) {
    /* From each rank to the next; the last one receives first, which avoids a circular wait. */
    const int to = (own_rank + 1) % world_size;
    const int from = (own_rank + world_size - 1) % world_size;
    const int last = own_rank == world_size - 1;
    if (!last) code = fulldeck_send(group, input, count * sizeof(float), to, call);
    if (code == FULLDECK_OK) code = fulldeck_receive(group, output, count * sizeof(float), from, call, NULL);
    if (last && code == FULLDECK_OK) code = fulldeck_send(group, input, count * sizeof(float), to, call);
    written = count;
    expected = (float)(from + 1 + (int)(call % 5));
  } else {
    code = fulldeck_barrier(group);
  }
  if (code != FULLDECK_OK) return code;
  for (uint64_t i = 0; i < written; ++i) {
    const float wanted = parts ? (float)(i / count + 1 + call % 5) : expected;  // NOLINT(bugprone-integer-division)
    if (output[i] != wanted) return Wrong(operation, i, output[i], wanted);
  }
  return FULLDECK_OK;
}

/* A call that the others do not make. */
static int OtherCall(fulldeck_group* group, const char* fault, uint64_t count) {
  if (strcmp(fault, "operation") == 0) return fulldeck_barrier(group);
  if (strcmp(fault, "type") == 0) return fulldeck_all_reduce(group, input, output, count, FULLDECK_INT32, FULLDECK_SUM);
  if (strcmp(fault, "count") == 0)
    return fulldeck_all_reduce(group, input, output, count - 1, FULLDECK_FLOAT32, FULLDECK_SUM);
  if (strcmp(fault, "root") == 0) return fulldeck_broadcast(group, output, count, FULLDECK_FLOAT32, 1);
  return fulldeck_all_reduce(group, input, output, count, FULLDECK_FLOAT32, FULLDECK_MAX);
}

static void* AbortLater(void* group) {
  Sleep(100);
  printf("aborting %.6f\n", Seconds());
  fflush(stdout);
  fulldeck_group_abort(group, "collectives_rank was told to");
  return NULL;
}

static int SayFailure(fulldeck_group* group, int code, uint64_t call) {
  const double now = Seconds();
  char text[16384];
  size_t length = 0;
  for (const char* at = fulldeck_error_text(); *at != '\0' && length + 4 < sizeof text; ++at) {
    if (*at == '\n') {
      memcpy(text + length, " | ", 3);
      length += 3;
    } else {
      text[length++] = *at;
    }
  }
  text[length] = '\0';
  char first[16384];
  snprintf(first, sizeof first, "%s", fulldeck_error_text());
  float value = 0;
  int same = fulldeck_barrier(group) == code && strcmp(fulldeck_error_text(), first) == 0;
  same = same && fulldeck_all_reduce(group, &value, &value, 1, FULLDECK_FLOAT32, FULLDECK_SUM) == code;
  same = same && fulldeck_group_status(group) == code && strcmp(fulldeck_error_text(), first) == 0;
  printf("failed %d %llu %.6f %s %s\n", code, (unsigned long long)call, now, same ? "same" : "other", text);
  fflush(stdout);
  return 0;
}

/* `release`: SIGUSR1, which is blocked. */
static void Hold(const sigset_t* release) {
  int number = 0;
  Say("holding");
  while (sigwait(release, &number) != 0) {
  }
}

static int Descriptors(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static fulldeck_group* Join(int argc, char** argv, uint64_t number) {
  char name[256];
  snprintf(name, sizeof name, "%s %llu", Option(argc, argv, "name", "world"), (unsigned long long)number);
  const fulldeck_group_options options = {.struct_bytes = sizeof options,
                                          .rank = own_rank,
                                          .size = world_size,
                                          .name = name,
                                          .key = Option(argc, argv, "key", NULL),
                                          .timeout_ms = Number(argc, argv, "timeout", 60000)};
  fulldeck_group* group = NULL;
  const int code = fulldeck_group_create(&options, &group);
  if (code == FULLDECK_OK) return group;
  printf("failed %d 0 %.6f same %s\n", code, Seconds(), fulldeck_error_text());
  exit(1);
}

/* ---- more than 4 GiB ---- */

static int Large(fulldeck_group* group, uint64_t bytes) {
  int8_t* data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    perror("collectives_rank: mmap");
    return 99;
  }
  /* The period is not a divisor of a power of two, so data that is off by 4 GiB is detected. */
  for (uint64_t i = 0; i < bytes; ++i) data[i] = (int8_t)(own_rank == 0 ? i % 127 : 1);
  const double begin = Seconds();
  int code = fulldeck_broadcast(group, data, bytes, FULLDECK_INT8, 0);
  if (code != FULLDECK_OK) return SayFailure(group, code, 1);
  const double between = Seconds();
  for (uint64_t i = 0; i < bytes; ++i) {
    if (data[i] != (int8_t)(i % 127)) return Wrong("broadcast", i, data[i], (double)(i % 127));
  }
  const double again = Seconds();
  code = fulldeck_all_reduce(group, data, data, bytes, FULLDECK_INT8, FULLDECK_SUM);
  if (code != FULLDECK_OK) return SayFailure(group, code, 2);
  const double end = Seconds();
  for (uint64_t i = 0; i < bytes; ++i) {
    const int8_t expected = (int8_t)((int)(i % 127) * world_size);
    if (data[i] != expected) return Wrong("all_reduce", i, data[i], expected);
  }
  printf("large broadcast %.1f s, all_reduce %.1f s\n", between - begin, end - again);
  munmap(data, bytes);
  Say("calls 2");
  return 0;
}

/* ---- main ---- */

static void HaveAccident(fulldeck_group* group, const char* fault, uint64_t after) {
  Sleep(after);
  printf("accident %.6f\n", Seconds());
  fflush(stdout);
  if (strcmp(fault, "kill") == 0) raise(SIGKILL);
  if (strcmp(fault, "segv") == 0) raise(SIGSEGV);
  if (strcmp(fault, "stop") == 0) raise(SIGSTOP);
  if (strcmp(fault, "exit") == 0) exit(0);
  if (strcmp(fault, "leave") == 0) {
    fulldeck_group_destroy(group);
    while (1) pause();
  }
  if (strcmp(fault, "hang") == 0) {
    while (1) pause();
  }
}

int main(int argc, char** argv) {
  own_rank = (int)Number(argc, argv, "rank", 0);
  world_size = (int)Number(argc, argv, "size", 1);
  const uint64_t count = Number(argc, argv, "count", 1000);
  const uint64_t calls = Number(argc, argv, "calls", 0);
  const char* operation = Option(argc, argv, "op", "all_reduce");
  const char* fault = Option(argc, argv, "fault", "none");
  const uint64_t at = Number(argc, argv, "at", 0);
  const uint64_t groups = Number(argc, argv, "groups", 0);
  const uint64_t call_timeout = Number(argc, argv, "call_timeout", 0);
  const uint64_t hold = Number(argc, argv, "hold", 0);
  sigset_t release;
  sigemptyset(&release);
  sigaddset(&release, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &release, NULL);
  if (strcmp(Option(argc, argv, "watch", "pidfd"), "connection") == 0) LosePidfds();
  input = calloc(count * (uint64_t)world_size + 1, sizeof(float));
  output = calloc(count * (uint64_t)world_size + 1, sizeof(float));
  if (input == NULL || output == NULL) return 99;

  int first_descriptors = 0;
  for (uint64_t number = 0; number < groups; ++number) {
    /* The first groups open descriptors that stay open for the process. */
    if (number == 10) first_descriptors = Descriptors();
    fulldeck_group* group = Join(argc, argv, number);
    for (uint64_t call = 1; call <= calls; ++call) {
      const int code =
          Call(group, kOperations[call % kOperationCount], count, call, (int)(call % (uint64_t)world_size));
      if (code != FULLDECK_OK) return code == 1 ? 1 : SayFailure(group, code, call);
    }
    if (number % 7 == 3) fulldeck_group_abort(group, "now and then");
    fulldeck_group_destroy(group);
  }
  if (groups > 0) {
    printf("descriptors %d %d\n", first_descriptors, Descriptors());
    return 0;
  }

  fulldeck_group* group = Join(argc, argv, 0);
  Say("ready");
  if (Number(argc, argv, "large", 0) > 0) {
    const int code = Large(group, Number(argc, argv, "large", 0));
    fulldeck_group_destroy(group);
    return code;
  }
  pthread_t aborting = 0;
  for (uint64_t call = 1; calls == 0 || call <= calls; ++call) {
    const char* now = strcmp(operation, "mixed") == 0 ? kOperations[call % kOperationCount] : operation;
    int code = FULLDECK_OK;
    if (call == at && strcmp(fault, "left_out") == 0) {
      printf("accident %.6f\n", Seconds());
      fflush(stdout);
      continue;
    }
    const int is_desync = strcmp(fault, "operation") == 0 || strcmp(fault, "type") == 0 ||
                          strcmp(fault, "count") == 0 || strcmp(fault, "root") == 0 || strcmp(fault, "reduction") == 0;
    if (call == at && is_desync) {
      printf("accident %.6f\n", Seconds());
      fflush(stdout);
      code = OtherCall(group, fault, count);
    } else {
      if (call == at && strcmp(fault, "abort") == 0) {
        if (pthread_create(&aborting, NULL, AbortLater, group) != 0) return 99;
      } else if (call == at && strcmp(fault, "none") != 0) {
        HaveAccident(group, fault, Number(argc, argv, "after", 0));
      }
      if (call == hold) Hold(&release);
      if (call_timeout > 0 && call == (hold > 0 ? hold : 1)) fulldeck_group_set_timeout(group, call_timeout);
      code = Call(group, now, count, call, (int)(call % (uint64_t)world_size));
    }
    if (code == 1) return 1;
    if (code != FULLDECK_OK) {
      if (call == at && strcmp(fault, "abort") == 0) pthread_join(aborting, NULL);
      SayFailure(group, code, call);
      fulldeck_group_destroy(group);
      return 0;
    }
    if (call == 1) Say("calling");
  }
  fulldeck_group_destroy(group);
  printf("calls %llu\n", (unsigned long long)calls);
  return 0;
}
