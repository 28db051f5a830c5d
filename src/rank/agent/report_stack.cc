#include "agent/report_stack.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "agent/guarded_memory.h"

// fulldeck_call_on_stack(work, argument, top): calls work(argument) with the stack pointer at `top`. In assembly
// because C++ cannot switch stacks; the CFI directives tell unwinders where the caller is.
extern "C" void fulldeck_call_on_stack(void (*work)(void*), void* argument, void* top);

#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .hidden fulldeck_call_on_stack
  .globl fulldeck_call_on_stack
  .type fulldeck_call_on_stack, @function
fulldeck_call_on_stack:
  .cfi_startproc
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsp
  callq *%rax
  movq %rbp, %rsp
  popq %rbp
  .cfi_def_cfa %rsp, 8
  retq
  .cfi_endproc
  .size fulldeck_call_on_stack, .-fulldeck_call_on_stack
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .hidden fulldeck_call_on_stack
  .globl fulldeck_call_on_stack
  .type fulldeck_call_on_stack, %function
fulldeck_call_on_stack:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x29, sp
  .cfi_def_cfa_register x29
  mov x9, x0
  mov x0, x1
  mov sp, x2
  blr x9
  mov sp, x29
  ldp x29, x30, [sp], #16
  .cfi_def_cfa sp, 0
  ret
  .cfi_endproc
  .size fulldeck_call_on_stack, .-fulldeck_call_on_stack
  .popsection
)");
#endif

namespace fulldeck::agent {
namespace {

constexpr std::size_t kSize = 128 * 1024;
constinit char* memory = nullptr;

struct Run {
  void (*work)(void*);
  void* argument;
  stack_t before;
};

void Enter(void* argument) {
  Run& run = *static_cast<Run*>(argument);
  // The kernel must take this stack for the thread's alternate stack. Otherwise it would put the frame of the next
  // signal at the top of the other one, over the handler that is running there.
  stack_t ours{};
  ours.ss_sp = memory;
  ours.ss_size = kSize;
  sigaltstack(&ours, &run.before);
  run.work(run.argument);
}

}  // namespace

void MakeReportStack() {
  memory = GuardedMemory(kSize);
}

void RunOnReportStack(void (*work)(void*), void* argument) {
#if defined(__x86_64__) || defined(__aarch64__)
  if (memory != nullptr) {
    Run run{work, argument, {}};
    fulldeck_call_on_stack(Enter, &run, memory + kSize);
    sigaltstack(&run.before, nullptr);
    return;
  }
#endif
  work(argument);
}

}  // namespace fulldeck::agent
