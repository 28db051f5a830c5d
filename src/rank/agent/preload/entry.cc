// Entry point of the preloaded library: what it does when the loader maps it into a process, and the functions that it
// interposes.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "agent/board_identity.h"
#include "agent/crash_report.h"
#include "agent/log_writes.h"
#include "agent/module_names.h"
#include "agent/preload_variable.h"
#include "agent/signal_chain.h"
#include "agent/stack_signal.h"
#include "agent/wrapper_programs.h"
#include "wire/variables.h"

namespace fulldeck::agent {
namespace {

using Write = ssize_t(int, const void*, std::size_t);
using Writev = ssize_t(int, const iovec*, int);
// Resolved when a rank starts; null before that and in other processes, where the interposed functions call the kernel
// directly.
Write* real_write = nullptr;
Writev* real_writev = nullptr;

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void Start();

// The path under which the loader loaded this library.
const char* LibraryPath() {
  const char* const variable = FindVariable(environ, wire::kAgentVariable);
  if (variable != nullptr && *variable != '\0') return variable;
  Dl_info found{};
  return dladdr(reinterpret_cast<void*>(&Start), &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : "";
}

bool IsRank() {
  const char* const text = FindVariable(environ, wire::kRankPidVariable);
  if (text == nullptr || *text == '\0') return false;
  char* end = nullptr;
  const long pid = std::strtol(text, &end, 10);
  return *end == '\0' && pid == getpid();
}

[[gnu::constructor]] void Start() {
  const int error = errno;
  if (!IsRank()) {
    RemoveAgent(environ, LibraryPath());
    errno = error;
    return;
  }
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  const char* const name = BaseName(program);
  const bool wrapper = IsWrapper(name);
  fulldeck_board* const board = WriteIdentity(name, !wrapper);
  const char* const crashes = FindVariable(environ, wire::kCrashFileVariable);
  real_write = Next<Write>("write");
  real_writev = Next<Writev>("writev");
  ProtectLogs(crashes, board);
  if (!wrapper) {
    const char* const stacks = FindVariable(environ, wire::kStackFileVariable);
    if (crashes != nullptr && PrepareReports(crashes, getpid())) {
      StartChain();
      if (stacks != nullptr) StartStackSignal(stacks, board);
    }
    RemoveAgent(environ, LibraryPath());
  }
  errno = error;
}

using Handler = void (*)(int);

bool IsTakenOver(int signal_number) {
  return IsChained(signal_number) || IsStackSignal(signal_number);
}

Handler SetHandler(int signal_number, Handler handler, int flags, bool blocks_itself) {
  struct sigaction wanted {};
  struct sigaction previous {};
  wanted.sa_handler = handler;
  wanted.sa_flags = flags;
  sigemptyset(&wanted.sa_mask);
  if (blocks_itself) sigaddset(&wanted.sa_mask, signal_number);
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  return ChainedSigaction(signal_number, &wanted, &previous) == 0 ? previous.sa_handler : SIG_ERR;
}

Handler BsdSignal(int signal_number, Handler handler) {
  if (IsTakenOver(signal_number)) return SetHandler(signal_number, handler, SA_RESTART, true);
  auto* const next = Next<Handler(int, Handler)>("signal");
  return next != nullptr ? next(signal_number, handler) : SIG_ERR;
}

Handler SystemVSignal(int signal_number, Handler handler) {
  constexpr auto kOnce = static_cast<int>(SA_RESETHAND) | SA_NODEFER;
  if (IsTakenOver(signal_number)) return SetHandler(signal_number, handler, kOnce, false);
  auto* const next = Next<Handler(int, Handler)>("__sysv_signal");
  return next != nullptr ? next(signal_number, handler) : SIG_ERR;
}

ssize_t WriteOrCount(int fd, const void* data, std::size_t bytes) {
  const ssize_t result = real_write != nullptr ? real_write(fd, data, bytes) : syscall(SYS_write, fd, data, bytes);
  return AnswerOfWrite(fd, bytes, result);
}

ssize_t WritevOrCount(int fd, const iovec* parts, int count) {
  const ssize_t result = real_writev != nullptr ? real_writev(fd, parts, count) : syscall(SYS_writev, fd, parts, count);
  if (result >= 0) return result;
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return AnswerOfWrite(fd, bytes, result);
}

}  // namespace
}  // namespace fulldeck::agent

#define EXPORTED [[gnu::visibility("default")]]

// NOLINTBEGIN(readability-identifier-naming): the names are the C library's.
extern "C" {

EXPORTED int sigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous) noexcept {
  return fulldeck::agent::ChainedSigaction(signal_number, wanted, previous);
}

EXPORTED ssize_t write(int fd, const void* data, size_t bytes) {
  return fulldeck::agent::WriteOrCount(fd, data, bytes);
}

EXPORTED ssize_t writev(int fd, const struct iovec* parts, int count) {
  return fulldeck::agent::WritevOrCount(fd, parts, count);
}

EXPORTED int __sigaction(int signal_number, const struct sigaction* wanted, struct sigaction* previous) noexcept {
  return fulldeck::agent::ChainedSigaction(signal_number, wanted, previous);
}

EXPORTED sighandler_t signal(int signal_number, sighandler_t handler) noexcept {
  return fulldeck::agent::BsdSignal(signal_number, handler);
}

EXPORTED sighandler_t bsd_signal(int signal_number, sighandler_t handler) noexcept {
  return fulldeck::agent::BsdSignal(signal_number, handler);
}

EXPORTED sighandler_t ssignal(int signal_number, sighandler_t handler) noexcept {
  return fulldeck::agent::BsdSignal(signal_number, handler);
}

EXPORTED sighandler_t sysv_signal(int signal_number, sighandler_t handler) noexcept {
  return fulldeck::agent::SystemVSignal(signal_number, handler);
}

EXPORTED sighandler_t __sysv_signal(int signal_number, sighandler_t handler) noexcept {
  return fulldeck::agent::SystemVSignal(signal_number, handler);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
