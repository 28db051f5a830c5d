// Resolves addresses of the program: which file, which offset in it, which function. Reads /proc/self/maps and the
// tables of the loaded files itself, takes no lock of the loader (another thread may hold it and wait for this one),
// and allocates nothing. Functions that a file does not export have no name here; use `addr2line -e PATH OFFSET`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/native_stack.h"

namespace fulldeck::agent {

struct Module {
  std::uintptr_t start;  // of its first mapping
  std::uintptr_t bias;   // address = bias + the address in the file's own tables
  bool is_elf;
  char path[512];
};

struct FramePlace {
  int module;             // index into NamedStack::modules; -1: not in a file
  std::uintptr_t offset;  // in the form that addr2line takes
  std::uintptr_t into;    // bytes from the start of the function
  char function[512];     // mangled; empty: not exported
};

struct NamedStack {
  std::size_t module_count;
  Module modules[kMaxFrames];
  FramePlace places[kMaxFrames];  // one per address of the stack
};

// The same for many addresses in one call, with one pass over the tables of each file: those of a big library have 10^5
// entries. The caller owns the memory.
struct NamedAddress {
  std::uintptr_t address;  // of an instruction
  int module;              // index into AddressBook::modules; -1: not in a file
  std::uintptr_t begin;    // of the function
  const char* function;    // in the file's own table, which may be unmapped: use CopyFunction. nullptr: not exported
};
struct AddressBook {
  NamedAddress* addresses;  // sorted by address, without duplicates
  std::size_t count;
  Module* modules;
  std::size_t module_count;  // set by NameAddresses
  std::size_t module_limit;
};
// Both have the requirements of fault_guard.h.
void NameAddresses(AddressBook& book);
// The text is empty if there is no name, or no longer.
void CopyFunction(const NamedAddress& named, char* into, std::size_t size);

// Has the requirements of fault_guard.h.
void NameFrames(const NativeStack& stack, NamedStack& named);

// "libtorch_cpu.so" of "/opt/x/libtorch_cpu.so".
const char* BaseName(const char* path);

}  // namespace fulldeck::agent
