// The stack of a thread at the moment when a signal interrupted it, innermost frame first. Unwinds with the tables that
// compilers emit into every program, so it needs neither debug information nor frame pointers. The unwinder is part of
// this library and private to it; it does not know frames of JIT-compiled code, and the stack ends there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::agent {

inline constexpr std::size_t kMaxFrames = 64;

struct NativeStack {
  std::uintptr_t addresses[kMaxFrames];  // [0]: the instruction; the others: return addresses
  std::size_t count;
  bool more;  // there were more frames than fit
};

// `context` is the third argument of the signal handler, in whose frame this must be called; it is restored on return.
// False: the stack is corrupt, or ends in unreadable memory; the frames up to there are valid. Has the requirements of
// fault_guard.h.
bool ReadStack(void* context, NativeStack& stack);

// The program counter and the stack pointer of the context; 0 on unsupported architectures.
std::uintptr_t ProgramCounter(const void* context);
std::uintptr_t StackPointer(const void* context);

}  // namespace fulldeck::agent
