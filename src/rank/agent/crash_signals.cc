#include "agent/crash_signals.h"

namespace fulldeck::agent {
namespace {

struct Reason {
  int signal_number;
  int code;
  const char* text;
};

constexpr Reason kReasons[] = {
    {SIGSEGV, SEGV_MAPERR, "no memory is mapped at that address"},
    {SIGSEGV, SEGV_ACCERR, "the memory at that address may not be used in this way"},
    {SIGSEGV, 3, "a pointer left its bounds"},
    {SIGSEGV, 4, "a protection key forbids access to that address"},
    {SIGSEGV, SI_KERNEL, "the address is none that a program can have; the kernel does not say which"},
    {SIGBUS, BUS_ADRALN, "the address is not aligned"},
    {SIGBUS, BUS_ADRERR, "nothing stands behind that address: /dev/shm is full, or a mapped file was cut short"},
    {SIGBUS, BUS_OBJERR, "the hardware behind that address reports an error"},
    {SIGBUS, 4, "uncorrectable memory error: the memory of this machine is faulty"},
    {SIGBUS, 5, "uncorrectable memory error: the memory of this machine is faulty"},
    {SIGFPE, FPE_INTDIV, "integer division by zero"},
    {SIGFPE, FPE_INTOVF, "integer overflow"},
    {SIGFPE, FPE_FLTDIV, "floating point division by zero"},
    {SIGFPE, FPE_FLTOVF, "floating point overflow"},
    {SIGFPE, FPE_FLTUND, "floating point underflow"},
    {SIGFPE, FPE_FLTRES, "floating point result is inexact"},
    {SIGFPE, FPE_FLTINV, "invalid floating point operation"},
    {SIGILL, ILL_ILLOPC, "unknown instruction: built for another processor, or jumped into data"},
    {SIGILL, ILL_ILLOPN, "unknown instruction: built for another processor, or jumped into data"},
    {SIGILL, ILL_PRVOPC, "an instruction that only the kernel may use"},
};

}  // namespace

bool IsCrashSignal(int signal_number) {
  for (const int known : kCrashSignals) {
    if (known == signal_number) return true;
  }
  return false;
}

std::string_view CrashSignalName(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGABRT:
      return "SIGABRT";
    case SIGILL:
      return "SIGILL";
    default:
      return "signal";
  }
}

bool IsFault(const siginfo_t& info) {
  return info.si_signo != SIGABRT && info.si_code > 0;
}

std::string_view FaultReason(const siginfo_t& info) {
  for (const Reason& reason : kReasons) {
    if (reason.signal_number == info.si_signo && reason.code == info.si_code) return reason.text;
  }
  return "";
}

}  // namespace fulldeck::agent
