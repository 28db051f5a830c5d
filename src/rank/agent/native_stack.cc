#include "agent/native_stack.h"

#include <ucontext.h>
#include <unwind.h>

#include <cstring>

#include "agent/fault_guard.h"

// Defined only by LLVM's unwinder. Hidden: only a definition inside this library counts.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" [[gnu::weak, gnu::visibility("hidden")]] int __unw_step(void*);

namespace fulldeck::agent {
namespace {

struct Copy {
  std::uintptr_t from;
  void* into;
  std::size_t size;
};

// False if the load faults.
bool Read(std::uintptr_t address, void* into, std::size_t size) {
  Copy copy{address, into, size};
  return RunGuarded(
      [](void* argument) {
        const Copy& wanted = *static_cast<Copy*>(argument);
        std::memcpy(wanted.into, reinterpret_cast<const void*>(wanted.from), wanted.size);
      },
      &copy);
}

struct Registers {
  std::uintptr_t* counter;
  std::uintptr_t* stack;
  std::uintptr_t* link;  // nullptr if calls put the return address on the stack
};

Registers RegistersOf(void* context) {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  return {reinterpret_cast<std::uintptr_t*>(&registers[REG_RIP]),
          reinterpret_cast<std::uintptr_t*>(&registers[REG_RSP]), nullptr};
#elif defined(__aarch64__)
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
  return {reinterpret_cast<std::uintptr_t*>(&machine.pc), reinterpret_cast<std::uintptr_t*>(&machine.sp),
          reinterpret_cast<std::uintptr_t*>(&machine.regs[30])};
#else
  (void)context;
  return {nullptr, nullptr, nullptr};
#endif
}

struct Walk {
  NativeStack* stack;
  std::uintptr_t first;  // program counter of the interrupted code; frames before it belong to the handler
  std::uintptr_t shown;  // what to show for it
  bool reached;
};

_Unwind_Reason_Code Visit(_Unwind_Context* frame, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  std::uintptr_t address = _Unwind_GetIP(frame);
  if (!walk.reached) {
    if (address != walk.first) return _URC_NO_REASON;
    walk.reached = true;
    address = walk.shown;
  }
  if (address == 0) return _URC_END_OF_STACK;
  NativeStack& stack = *walk.stack;
  if (stack.count == kMaxFrames) {
    stack.more = true;
    return _URC_END_OF_STACK;
  }
  stack.addresses[stack.count++] = address;
  return _URC_NO_REASON;
}

void Unwind(void* walk) {
  _Unwind_Backtrace(Visit, walk);
}

}  // namespace

std::uintptr_t ProgramCounter(const void* context) {
  const Registers registers = RegistersOf(const_cast<void*>(context));
  return registers.counter != nullptr ? *registers.counter : 0;
}

std::uintptr_t StackPointer(const void* context) {
  const Registers registers = RegistersOf(const_cast<void*>(context));
  return registers.stack != nullptr ? *registers.stack : 0;
}

bool ReadStack(void* context, NativeStack& stack) {
  stack.count = 0;
  stack.more = false;
  const Registers registers = RegistersOf(context);
  if (registers.counter == nullptr) return false;
  const std::uintptr_t counter = *registers.counter;
  const std::uintptr_t stack_pointer = *registers.stack;
  Walk walk{&stack, counter, counter, false};

  // After a call through an invalid pointer, the program counter is not in code, and no unwind table applies. The call
  // has only stored its return address: undo the call in the registers that the unwinder reads, and start at the
  // caller.
  char code = 0;
  std::uintptr_t return_address = registers.link != nullptr ? *registers.link : 0;
  const bool wild = !Read(counter, &code, 1);
  if (wild) {
    stack.addresses[stack.count++] = counter;
    if (registers.link == nullptr && Read(stack_pointer, &return_address, sizeof return_address)) {
      *registers.stack = stack_pointer + sizeof return_address;
    }
    // One byte back is inside the call instruction, even if nothing follows it.
    walk.first = return_address != 0 && Read(return_address - 1, &code, 1) ? return_address - 1 : 0;
    walk.shown = return_address;
  } else if (__unw_step != nullptr) {
    // LLVM's unwinder takes every address for a return address and uses the table entry just before it. One byte
    // further, that is the entry of the interrupted instruction.
    walk.first = counter + 1;
  }
  *registers.counter = walk.first;
  const bool whole = walk.first != 0 && RunGuarded(Unwind, &walk) && walk.reached;
  *registers.counter = counter;
  *registers.stack = stack_pointer;
  if (stack.count == 0) stack.addresses[stack.count++] = counter;
  return whole;
}

}  // namespace fulldeck::agent
