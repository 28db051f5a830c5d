// The stack of a thread at the moment when a signal stopped it, innermost frame first.
// Unwinds with the tables that compilers leave in every program, so it needs neither debug information nor frame
// pointers. The unwinder is part of this library and private to it; frames of code made at run time (JIT) are not known
// to it, and the stack ends there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::agent {

inline constexpr std::size_t kMaxFrames = 64;

struct NativeStack {
  std::uintptr_t addresses[kMaxFrames];  // [0]: the instruction; the others: where a call returns to
  std::size_t count;
  bool more;  // there were more frames than fit
};

// `context` is the third argument of the signal handler, in whose frame this must be called; it is the same again after
// it. False: the stack is broken, or ends in a place that cannot be read, and the frames before that are there. Needs
// what fault_guard.h needs.
bool ReadStack(void* context, NativeStack& stack);

// The program counter and the stack pointer of the context; 0 on machines that this file does not know.
std::uintptr_t ProgramCounter(const void* context);
std::uintptr_t StackPointer(const void* context);

}  // namespace fulldeck::agent
