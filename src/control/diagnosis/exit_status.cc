#include "diagnosis/exit_status.h"

#include <sys/wait.h>

#include <csignal>

namespace fulldeck::diagnosis {
namespace {

struct SignalRow {
  int number;
  const char* name;
  const char* meaning;
};

constexpr SignalRow kSignals[] = {
    {SIGHUP, "SIGHUP", "its terminal or session ended"},
    {SIGINT, "SIGINT", "interrupted"},
    {SIGQUIT, "SIGQUIT", "quit from the terminal"},
    {SIGILL, "SIGILL", "an instruction that this processor does not have"},
    {SIGTRAP, "SIGTRAP", "a breakpoint without a debugger"},
    {SIGABRT, "SIGABRT", "it gave up itself: a failed check, an uncaught C++ exception, or damaged heap memory"},
    {SIGBUS, "SIGBUS", "memory behind a mapping is gone: a file was cut short, or shared memory is full"},
    {SIGFPE, "SIGFPE", "integer division by zero or overflow"},
    {SIGKILL, "SIGKILL", ""},
    {SIGUSR1, "SIGUSR1", "it does not catch this signal"},
    {SIGSEGV, "SIGSEGV", "segmentation fault: it touched memory that it does not own"},
    {SIGUSR2, "SIGUSR2", "it does not catch this signal"},
    {SIGPIPE, "SIGPIPE", "it wrote to a pipe or socket that nobody reads"},
    {SIGALRM, "SIGALRM", "an alarm that it does not catch"},
    {SIGTERM, "SIGTERM", "somebody asked it to end"},
    {SIGXCPU, "SIGXCPU", "its limit of processor time is used up: ulimit -t"},
    {SIGXFSZ, "SIGXFSZ", "a file grew beyond the limit: ulimit -f"},
    {SIGSYS, "SIGSYS", "a system call that this container's seccomp filter forbids"},
    {SIGSTOP, "SIGSTOP", ""},
    {SIGTSTP, "SIGTSTP", ""},
    {SIGCONT, "SIGCONT", ""},
    {SIGTTIN, "SIGTTIN", "it read from a terminal in the background"},
    {SIGTTOU, "SIGTTOU", "it wrote to a terminal in the background"},
    {SIGIO, "SIGIO", ""},
    {SIGVTALRM, "SIGVTALRM", ""},
    {SIGPROF, "SIGPROF", "a profiler's timer that it does not catch"},
    {SIGPWR, "SIGPWR", ""},
};

const SignalRow* Find(int signal_number) {
  for (const SignalRow& row : kSignals) {
    if (row.number == signal_number) return &row;
  }
  return nullptr;
}

}  // namespace

std::string SignalName(int signal_number) {
  const SignalRow* row = Find(signal_number);
  return row != nullptr ? row->name : "signal " + std::to_string(signal_number);
}

std::string SignalMeaning(int signal_number) {
  const SignalRow* row = Find(signal_number);
  return row != nullptr ? row->meaning : "";
}

bool ExitStatus::ok() const {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

int ExitStatus::signal_number() const {
  return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
}

int ExitStatus::exit_code() const {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string ExitStatus::ToString() const {
  if (!WIFSIGNALED(wait_status)) return "exited with code " + std::to_string(WEXITSTATUS(wait_status));
  const std::string meaning = SignalMeaning(signal_number());
  return "killed by " + SignalName(signal_number()) + (meaning.empty() ? "" : " (" + meaning + ")");
}

}  // namespace fulldeck::diagnosis
