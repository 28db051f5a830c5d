// Where addresses of the program lie: which file, where in it, in which function. Reads /proc/self/maps and the tables
// of the loaded files themselves, takes no lock of the loader (another thread may hold it and wait for this one), and
// allocates nothing. Functions that a file does not export have no name here; `addr2line -e PATH OFFSET` has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/native_stack.h"

namespace fulldeck::agent {

struct Module {
  std::uintptr_t start;  // of its first mapping
  std::uintptr_t bias;   // address = bias + the number that the file itself uses
  bool is_elf;
  char path[512];
};

struct FramePlace {
  int module;             // into NamedStack::modules; -1: in no file
  std::uintptr_t offset;  // as addr2line takes it
  std::uintptr_t into;    // bytes from the beginning of the function
  char function[512];     // mangled; empty: not exported
};

struct NamedStack {
  std::size_t module_count;
  Module modules[kMaxFrames];
  FramePlace places[kMaxFrames];  // one for each address of the stack
};

// The same for many addresses at once, at the price of one pass over the tables of each file: those of a big library
// have 10^5 rows. The memory is the caller's.
struct NamedAddress {
  std::uintptr_t address;  // of an instruction
  int module;              // into AddressBook::modules; -1: in no file
  std::uintptr_t begin;    // of the function
  const char* function;    // in the file's own table, which may go away: CopyFunction reads it. nullptr: not exported
};
struct AddressBook {
  NamedAddress* addresses;  // sorted by address, each once
  std::size_t count;
  Module* modules;
  std::size_t module_count;  // set by NameAddresses
  std::size_t module_limit;
};
// Both need what fault_guard.h needs.
void NameAddresses(AddressBook& book);
// The text is empty when there is none (any more).
void CopyFunction(const NamedAddress& named, char* into, std::size_t size);

// Needs what fault_guard.h needs.
void NameFrames(const NativeStack& stack, NamedStack& named);

// "libtorch_cpu.so" of "/opt/x/libtorch_cpu.so".
const char* BaseName(const char* path);

}  // namespace fulldeck::agent
