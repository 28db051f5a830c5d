// The signals that end a program because it is broken, and what the kernel says about one, in text.
// Everything here may be called in a signal handler.
#pragma once

#include <signal.h>

#include <string_view>

namespace fulldeck::agent {

inline constexpr int kCrashSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL};

bool IsCrashSignal(int signal_number);

// "SIGSEGV".
std::string_view CrashSignalName(int signal_number);

// Whether the kernel raised it for an instruction of the program, so that the fault address means something. Else a
// process sent it.
bool IsFault(const siginfo_t& info);

// "no memory is mapped at that address"; empty where the kernel says nothing of use.
std::string_view FaultReason(const siginfo_t& info);

}  // namespace fulldeck::agent
