#include "agent/crash_report.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "agent/crash_signals.h"
#include "agent/module_names.h"
#include "agent/native_stack.h"
#include "agent/report_lock.h"
#include "agent/report_stack.h"
#include "agent/signal_text.h"
#include "base/files/open_without_links.h"

namespace fulldeck::agent {
namespace {

constinit char report_path[PATH_MAX] = "";
constinit int rank_process = 0;
constinit SignalText text;
constinit NativeStack stack{};
NamedStack named;

// Used only while holding the report lock.
constinit int reports_written = 0;

struct Fault {
  long thread;
  int signal_number;
  int code;
  const void* address;
  std::uintptr_t counter;
};
constinit Fault last_fault{};

// How long a crash waits for a report, or for stacks, that another thread is writing.
constexpr int kLockTimeoutMilliseconds = 2000;

int OpenReport() {
  // Nonblocking, in case the path is a pipe; and never through a planted symbolic link.
  return base::OpenWithoutLinks(report_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

// A stack overflow faults next to the stack pointer, where any other access would find mapped memory.
bool IsStackOverflow(const siginfo_t& info, const void* context) {
  constexpr std::uintptr_t kNear = 64 * 1024;
  if (info.si_signo != SIGSEGV || (info.si_code != SEGV_MAPERR && info.si_code != SEGV_ACCERR)) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const std::uintptr_t pointer = StackPointer(context);
  return address + kNear > pointer && address < pointer + kNear;
}

void WriteHead(int signal_number, const siginfo_t& info, const void* context, long thread) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char thread_name[17] = "";
  prctl(PR_GET_NAME, thread_name, 0, 0, 0);
  const int pid = getpid();

  text << "fulldeck crash report 1\nsignal: " << CrashSignalName(signal_number);
  const std::string_view reason =
      IsStackOverflow(info, context) ? "the stack is used up, as by endless recursion" : FaultReason(info);
  if (!reason.empty()) text << ": " << reason;
  if (!IsFault(info)) {
    if (info.si_code > 0) {
      text << ": raised by the kernel";
    } else if (info.si_pid == pid) {
      text << ": raised by the program itself";
    } else {
      text << ": sent by process " << std::int64_t{info.si_pid} << " of user " << std::int64_t{info.si_uid};
    }
  }
  text << "\ncode: " << std::int64_t{info.si_code};
  if (IsFault(info) && info.si_code != SI_KERNEL)
    (text << "\naddress: ").Hex(reinterpret_cast<std::uintptr_t>(info.si_addr));
  text << "\nprocess: " << std::int64_t{pid};
  if (pid != rank_process) text << " (forked from the rank, process " << std::int64_t{rank_process} << ")";
  (text << "\nthread: " << std::int64_t{thread} << " ").Quoted(thread_name);
  (text << "\ntime: ").Seconds(now) << "\n";
  // Flush first: what follows reads memory that may be corrupt.
  text.Flush();
}

void WriteFrame(std::size_t frame) {
  const FramePlace& place = named.places[frame];
  (text << "#" << static_cast<std::int64_t>(frame) << " ").Hex(stack.addresses[frame]);
  if (place.module >= 0) {
    (text << " ").Quoted(BaseName(named.modules[place.module].path));
    (text << "+").Hex(place.offset);
  }
  if (place.function[0] != '\0') {
    (text << " ").Quoted(place.function);
    (text << "+").Hex(place.into);
  }
  text << "\n";
}

void WriteStack(void* context) {
  const bool whole = ReadStack(context, stack);
  NameFrames(stack, named);
  text << "stack, innermost first:\n";
  for (std::size_t frame = 0; frame < stack.count; ++frame) WriteFrame(frame);
  if (stack.more) text << "and more frames\n";
  if (!whole) text << "the stack is broken here, or cannot be read further\n";
  text << "files:\n";
  for (std::size_t i = 0; i < named.module_count; ++i) {
    if (named.modules[i].is_elf) text.Quoted(named.modules[i].path) << "\n";
  }
}

struct Crash {
  int signal_number;
  const siginfo_t* info;
  void* context;
  long thread;
  int file;
};

void WriteAll(void* argument) {
  const Crash& crash = *static_cast<Crash*>(argument);
  text.WriteTo(crash.file);
  WriteHead(crash.signal_number, *crash.info, crash.context, crash.thread);
  WriteStack(crash.context);
  text << "end of report\n";
  text.WriteTo(-1);
}

}  // namespace

bool PrepareReports(const char* path, int rank_pid) {
  const std::size_t length = std::strlen(path);
  if (length == 0 || length >= sizeof report_path) return false;
  std::memcpy(report_path, path, length + 1);
  rank_process = rank_pid;
  MakeReportStack();
  return true;
}

void ForgetReports() {
  ResetReportLock();
  reports_written = 0;
  last_fault = {};
}

Report WriteReport(int signal_number, const siginfo_t& info, void* context) {
  const long thread = syscall(SYS_gettid);
  if (!AcquireReportLock(thread, kLockTimeoutMilliseconds)) return Report::kNone;
  const Fault fault{thread, signal_number, info.si_code, info.si_addr, ProgramCounter(context)};
  // A handler that returns to the faulting instruction faults again immediately, in an endless loop.
  const bool again = IsFault(info) && reports_written > 0 && fault.thread == last_fault.thread &&
                     fault.signal_number == last_fault.signal_number && fault.code == last_fault.code &&
                     fault.address == last_fault.address && fault.counter == last_fault.counter;
  Report report = again ? Report::kDuplicate : Report::kNone;
  if (!again && reports_written < kMaxReports) {
    const int file = OpenReport();
    if (file >= 0) {
      last_fault = fault;
      ++reports_written;
      Crash crash{signal_number, &info, context, thread, file};
      RunOnReportStack(WriteAll, &crash);
      close(file);
      report = Report::kWritten;
    }
  }
  ReleaseReportLock();
  return report;
}

void AddToReport(const char* line) {
  AddSignalToReport(line, 0, "");
}

void AddSignalToReport(const char* before, int signal_number, const char* behind) {
  const long thread = syscall(SYS_gettid);
  if (!AcquireReportLock(thread, kLockTimeoutMilliseconds)) return;
  const int file = OpenReport();
  if (file >= 0) {
    text.WriteTo(file);
    text << before;
    if (signal_number != 0) text << CrashSignalName(signal_number);
    text << behind << "\n";
    text.WriteTo(-1);
    close(file);
  }
  ReleaseReportLock();
}

}  // namespace fulldeck::agent
