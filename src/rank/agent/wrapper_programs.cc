#include "agent/wrapper_programs.h"

namespace fulldeck::agent {
namespace {

constexpr std::string_view kWrappers[] = {
    // shells
    "ash",
    "bash",
    "busybox",
    "dash",
    "fish",
    "ksh",
    "ksh93",
    "mksh",
    "sh",
    "tcsh",
    "csh",
    "toybox",
    "zsh",
    // system tools: environment, priority, CPUs, limits, init processes of containers
    "catatonit",
    "chpst",
    "chroot",
    "chrt",
    "coreutils",
    "dumb-init",
    "env",
    "flock",
    "ionice",
    "nice",
    "nohup",
    "numactl",
    "numad",
    "hwloc-bind",
    "prlimit",
    "setarch",
    "setpriv",
    "setsid",
    "stdbuf",
    "taskset",
    "time",
    "timeout",
    "tini",
    "unshare",
    // debuggers, tracers and profilers
    "catchsegv",
    "cuda-gdb",
    "gdb",
    "gdbserver",
    "heaptrack",
    "lldb",
    "ltrace",
    "perf",
    "rr",
    "strace",
    "uftrace",
    "valgrind",
    "valgrind.bin",
    // profilers and checkers of card vendors
    "compute-sanitizer",
    "msprof",
    "ncu",
    "nsys",
    "nsys-launcher",
    "nvprof",
    "rocprof",
    "rocprofv3",
    "topsprof",
};

}  // namespace

bool IsWrapper(std::string_view name) {
  for (const std::string_view wrapper : kWrappers) {
    if (wrapper == name) return true;
  }
  return false;
}

}  // namespace fulldeck::agent
