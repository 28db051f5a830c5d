// The signals that end a broken program, and the kernel's details about one, as text. All functions are
// async-signal-safe.
#pragma once

#include <signal.h>

#include <string_view>

namespace fulldeck::agent {

inline constexpr int kCrashSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL};

bool IsCrashSignal(int signal_number);

// "SIGSEGV".
std::string_view CrashSignalName(int signal_number);

// Whether the kernel raised it for an instruction of the program, so that the fault address is meaningful. Otherwise a
// process sent it.
bool IsFault(const siginfo_t& info);

// "no memory is mapped at that address"; empty if the kernel gives no useful reason.
std::string_view FaultReason(const siginfo_t& info);

}  // namespace fulldeck::agent
