#include "agent/stack_report.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "agent/fault_guard.h"
#include "agent/module_names.h"
#include "agent/native_stack.h"
#include "agent/own_threads.h"
#include "agent/report_lock.h"
#include "agent/report_stack.h"
#include "agent/signal_chain.h"
#include "agent/signal_text.h"
#include "base/files/open_without_links.h"

namespace fulldeck::agent {
namespace {

constexpr std::size_t kMaxThreads = 512;
constexpr std::size_t kMaxAddresses = 16384;
constexpr std::size_t kMaxModules = 256;
constexpr std::size_t kMaxRequests = 8;

enum Answer : int {
  kNotRequested,
  kRequested,
  kAnswering,  // the thread is writing its entry
  kAnswered,   // the entry is complete
  kClosed,     // too late: the thread must not write its entry
  kAbandoned,  // it began and hangs; on return it releases the writer's lock, as the writer could not wait
};

struct Entry {
  std::atomic<int> answer;
  std::atomic<int> thread;
  ThreadStatus status;
  bool blocks;  // it blocks the signal, so it was not signaled
  std::uintptr_t pthread;
  std::size_t first;  // index into `addresses`
  std::size_t count;
  bool more;
  bool whole;
};

// None of this is touched, and so takes no memory, before the first request.
constinit char stack_path[PATH_MAX] = "";
constinit int stack_signal = 0;
constinit SignalText text;
int listed[kMaxThreads];
Entry entries[kMaxThreads];
constinit std::atomic<std::size_t> entry_count{0};  // release: the entries are complete
std::uintptr_t addresses[kMaxAddresses];
std::size_t address_count = 0;
NativeStack reading;  // of the thread that holds answer_lock
NamedAddress named[kMaxAddresses];
Module modules[kMaxModules];

// Requests that arrived while another was served; 0: free.
constinit std::atomic<std::uint64_t> waiting[kMaxRequests];
std::uint32_t requests[kMaxRequests + 1];
std::size_t request_count = 0;

// One thread reads its stack at a time: there is one report stack and one guard.
constinit std::atomic_flag answer_lock = ATOMIC_FLAG_INIT;
// Counts answers; a futex on which the writer sleeps.
constinit std::atomic<std::uint32_t> answers{0};

// Counts how often the threads that paused for Python's stacks were released; a futex on which they sleep.
constinit std::atomic<std::uint32_t> release_count{0};

constinit std::atomic<void (*)(int)> python_handler{nullptr};
constinit std::atomic<int> python_descriptor{-1};
constinit std::atomic<PythonDump> python_dump{nullptr};
constinit bool handler_faulted = false;  // used only while holding the report lock

long Thread() {
  return syscall(SYS_gettid);
}

long NowMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

struct Reading {
  Entry* entry;
  void* context;
};

void ReadInto(void* argument) {
  const Reading& wanted = *static_cast<Reading*>(argument);
  Entry& entry = *wanted.entry;
  entry.whole = ReadStack(wanted.context, reading);
  entry.first = address_count;
  entry.count = std::min(reading.count, kMaxAddresses - address_count);
  entry.more = reading.more || entry.count < reading.count;
  std::memcpy(addresses + address_count, reading.addresses, entry.count * sizeof *addresses);
  address_count += entry.count;
  entry.pthread = reinterpret_cast<std::uintptr_t>(pthread_self());
}

Entry* EntryOf(int thread) {
  // Acquire: pairs with the release in RequestAll.
  const std::size_t count = entry_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    if (entries[i].thread.load(std::memory_order_relaxed) == thread) return &entries[i];
  }
  return nullptr;
}

int OpenStacks() {
  const int file =
      base::OpenWithoutLinks(stack_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  if (file < 0) return -1;
  struct stat facts {};
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) ||
      (facts.st_size > kMaxStackFile && ftruncate(file, 0) != 0)) {
    close(file);
    return -1;
  }
  return file;
}

// Its answer is kRequested.
void Request(Entry& entry) {
  const int thread = entry.thread.load(std::memory_order_relaxed);
  if (syscall(SYS_tgkill, getpid(), thread, stack_signal) != 0) {
    entry.answer.store(kNotRequested, std::memory_order_relaxed);
  }
}

bool Blocks(const ThreadStatus& status) {
  return (status.blocked >> (stack_signal - 1) & 1) != 0;
}

// The C library starts a thread with all signals blocked for a moment. A running thread that blocks the signal may be
// such a thread: try again.
void RequestOfUnblocked() {
  constexpr int kTries = 5;
  static ThreadStatus now;
  const std::size_t count = entry_count.load(std::memory_order_relaxed);
  for (int tries = 0; tries < kTries; ++tries) {
    bool any = false;
    for (std::size_t i = 1; i < count; ++i) {
      Entry& entry = entries[i];
      if (!entry.blocks || entry.status.state != 'R') continue;
      if (!ReadStatus(entry.thread.load(std::memory_order_relaxed), now)) continue;
      any = any || Blocks(now);
      if (Blocks(now)) continue;
      entry.blocks = false;
      entry.status = now;
      entry.answer.store(kRequested, std::memory_order_release);
      Request(entry);
    }
    if (!any) return;
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

// Lists the threads, this one first, and signals the others. Returns whether there are more than fit.
bool RequestAll(void* context) {
  bool more = false;
  std::size_t found = ListThreads(listed, kMaxThreads, more);
  const int self = static_cast<int>(Thread());
  if (found == 0) listed[found++] = self;
  auto* const own = std::find(listed, listed + found, self);
  if (own == listed + found) {
    listed[found - 1] = self;
    std::swap(listed[0], listed[found - 1]);
  } else {
    std::rotate(listed, own, own + 1);
  }
  address_count = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < found; ++i) {
    Entry& entry = entries[count];
    entry.thread.store(listed[i], std::memory_order_relaxed);
    const bool lives = ReadStatus(listed[i], entry.status);
    if (!lives && i != 0) continue;
    entry.blocks = i != 0 && Blocks(entry.status);
    entry.first = entry.count = 0;
    entry.more = false;
    entry.whole = true;
    entry.pthread = 0;
    entry.answer.store(i == 0 ? kAnswered : entry.blocks ? kNotRequested : kRequested, std::memory_order_release);
    ++count;
  }
  Reading own_stack{&entries[0], context};
  RunOnReportStack(ReadInto, &own_stack);
  // Release: pairs with the acquire in EntryOf.
  entry_count.store(count, std::memory_order_release);
  for (std::size_t i = 1; i < count; ++i) {
    if (entries[i].answer.load(std::memory_order_relaxed) == kRequested) Request(entries[i]);
  }
  RequestOfUnblocked();
  return more;
}

bool AnyIs(int answer) {
  const std::size_t count = entry_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    // Acquire: pairs with the release by the thread that answered.
    if (entries[i].answer.load(std::memory_order_acquire) == answer) return true;
  }
  return false;
}

// A thread that exited after it was signaled will not answer.
void CloseEnded() {
  const int pid = getpid();
  const std::size_t count = entry_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    int requested = kRequested;
    if (entries[i].answer.load(std::memory_order_relaxed) != kRequested) continue;
    if (syscall(SYS_tgkill, pid, entries[i].thread.load(std::memory_order_relaxed), 0) == 0) continue;
    entries[i].answer.compare_exchange_strong(requested, kClosed, std::memory_order_acq_rel);
  }
}

void WaitWhileAnyIs(int answer, long until) {
  constexpr long kPollMilliseconds = 50;
  for (;;) {
    const std::uint32_t seen = answers.load(std::memory_order_acquire);
    const long left = until - NowMilliseconds();
    if (left <= 0 || !AnyIs(answer)) return;
    const timespec timeout{0, std::min(left, kPollMilliseconds) * 1'000'000};
    const long woken = syscall(SYS_futex, &answers, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
    if (woken != 0 && errno == ETIMEDOUT) CloseEnded();
  }
}

// Returns false if a thread hangs in the middle of its answer; the shared state that it uses is then unavailable.
bool AwaitAnswers() {
  const long until = NowMilliseconds() + kAnswerMilliseconds;
  WaitWhileAnyIs(kRequested, until);
  const std::size_t count = entry_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    int requested = kRequested;
    entries[i].answer.compare_exchange_strong(requested, kClosed, std::memory_order_acq_rel);
  }
  WaitWhileAnyIs(kAnswering, NowMilliseconds() + kGraceMilliseconds);
  bool free = true;
  for (std::size_t i = 0; i < count; ++i) {
    int answering = kAnswering;
    if (entries[i].answer.compare_exchange_strong(answering, kAbandoned, std::memory_order_acq_rel)) free = false;
  }
  return free;
}

AddressBook NameAll() {
  // The address inside the instruction of a frame: a return address can be the first byte after its function.
  std::size_t count = 0;
  const std::size_t threads = entry_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < threads; ++i) {
    if (entries[i].answer.load(std::memory_order_relaxed) != kAnswered) continue;
    for (std::size_t frame = 0; frame < entries[i].count; ++frame) {
      named[count++].address = addresses[entries[i].first + frame] - (frame == 0 ? 0 : 1);
    }
  }
  std::sort(named, named + count,
            [](const NamedAddress& one, const NamedAddress& other) { return one.address < other.address; });
  const auto* const end = std::unique(named, named + count, [](const NamedAddress& one, const NamedAddress& other) {
    return one.address == other.address;
  });
  AddressBook book{named, static_cast<std::size_t>(end - named), modules, 0, kMaxModules};
  NameAddresses(book);
  return book;
}

// `book` may be empty: then frames are bare addresses.
void WriteFrame(const AddressBook& book, std::size_t frame, std::uintptr_t address) {
  (text << "#" << static_cast<std::int64_t>(frame) << " ").Hex(address);
  const std::uintptr_t inside = address - (frame == 0 ? 0 : 1);
  const auto* const end = book.addresses + book.count;
  const auto* const found =
      std::lower_bound(book.addresses, const_cast<NamedAddress*>(end), inside,
                       [](const NamedAddress& entry, std::uintptr_t wanted) { return entry.address < wanted; });
  if (found != end && found->address == inside && found->module >= 0) {
    const Module& module = book.modules[found->module];
    (text << " ").Quoted(BaseName(module.path));
    (text << "+").Hex(address - module.bias);
    static char function[512];
    CopyFunction(*found, function, sizeof function);
    if (function[0] != '\0') {
      (text << " ").Quoted(function);
      (text << "+").Hex(address - found->begin);
    }
  }
  text << "\n";
}

const char* NoStackReason(const Entry& entry, int answer) {
  if (entry.blocks) return "it blocks the signal";
  if (answer == kNotRequested) return "it could not be asked";
  if (answer == kAbandoned) return "it hangs while it reads its stack";
  return "it did not answer in time";
}

void WriteThread(const Entry& entry, const AddressBook& book) {
  const int thread = entry.thread.load(std::memory_order_relaxed);
  (text << "thread: " << std::int64_t{thread} << " ").Quoted(entry.status.name) << "\n";
  const int answer = entry.answer.load(std::memory_order_acquire);
  if (answer == kAnswered) {
    (text << "pthread: ").Hex(entry.pthread) << "\n";
    for (std::size_t frame = 0; frame < entry.count; ++frame) {
      WriteFrame(book, frame, addresses[entry.first + frame]);
    }
    if (entry.more) text << "and more frames\n";
    if (!entry.whole) text << "the stack is broken here, or cannot be read further\n";
    return;
  }
  static ThreadStatus status;
  static ThreadPlace place;
  if (!ReadStatus(thread, status)) {
    text << "no stack: it has ended\n";
    return;
  }
  ReadPlace(thread, place);
  (text << "no stack: " << NoStackReason(entry, answer) << "; state ").Quoted(std::string_view(&status.state, 1));
  if (place.call[0] != '\0') (text << ", system call ").Quoted(place.call);
  if (place.channel[0] != '\0') (text << ", wait channel ").Quoted(place.channel);
  text << "\n";
}

struct PythonCall {
  void (*handler)(int);
  PythonDump dump;
  int file;
};

void CallPython(void* argument) {
  const PythonCall& call = *static_cast<PythonCall*>(argument);
  if (call.dump != nullptr) {
    call.dump(call.file, nullptr, nullptr);
  } else {
    call.handler(stack_signal);
  }
}

void WritePython(int file) {
  // Acquire: pairs with the release in SetPythonStacks.
  PythonCall call{python_handler.load(std::memory_order_acquire), nullptr, file};
  if (call.handler == nullptr) return;
  call.dump = python_dump.load(std::memory_order_relaxed);
  int copy = -1;
  if (call.dump == nullptr) {
    const int wanted = python_descriptor.load(std::memory_order_relaxed);
    if (handler_faulted) {
      text << "no Python stacks: Python could not read them before, and then writes none any more\n";
      return;
    }
    copy = fcntl(file, F_DUPFD_CLOEXEC, wanted);
    if (copy != wanted) {
      if (copy >= 0) close(copy);
      text << "no Python stacks: descriptor " << std::int64_t{wanted} << ", over which Python writes them, is in use\n";
      return;
    }
  }
  text << "Python stacks:\n";
  text.Flush();
  const bool whole = RunGuarded(CallPython, &call);
  if (copy >= 0) close(copy);
  if (whole) return;
  handler_faulted = call.dump == nullptr;
  // Python may have left an incomplete line.
  text << "\nthe Python stacks cannot be read further\n";
}

// Python reads the frames of all threads, and a thread that continues meanwhile would change them concurrently. A fault
// in that code is caught, but leaves faulthandler in a state in which it writes nothing any more. So threads that have
// answered pause, for at most kPauseMilliseconds.
void WaitForRelease(std::uint32_t seen) {
  const long until = NowMilliseconds() + kPauseMilliseconds;
  // Acquire: pairs with the release in ReleaseThreads.
  while (release_count.load(std::memory_order_acquire) == seen) {
    const long left = until - NowMilliseconds();
    if (left <= 0) return;
    const timespec timeout{left / 1000, left % 1000 * 1'000'000};
    syscall(SYS_futex, &release_count, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  }
}

void ReleaseThreads() {
  release_count.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &release_count, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

struct Writing {
  int file;
  bool free;  // no thread hangs in its answer, so the shared state is available
  bool more_threads;
};

void WriteAnswers(void* argument) {
  const Writing& writing = *static_cast<Writing*>(argument);
  if (writing.free) WritePython(writing.file);
  ReleaseThreads();
  text << "native stacks:\n";
  AddressBook book{named, 0, modules, 0, 0};
  if (writing.free) book = NameAll();
  const std::size_t count = entry_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) WriteThread(entries[i], book);
  if (writing.more_threads) text << "and more threads\n";
  text << "files:\n";
  for (std::size_t i = 0; i < book.module_count; ++i) {
    if (modules[i].is_elf) text.Quoted(modules[i].path) << "\n";
  }
}

// Releases the report lock, or leaves that to a thread that hangs in its answer.
void WriteTo(int file, void* context) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  text.WriteTo(file);
  text << "fulldeck stacks 1\nrequests:";
  for (std::size_t i = 0; i < request_count; ++i) text << " " << std::int64_t{requests[i]};
  (text << "\nprocess: " << std::int64_t{getpid()} << "\ntime: ").Seconds(now) << "\n";
  Writing writing{file, true, false};
  if (FaultsAreGuarded()) {
    text.Flush();
    writing.more_threads = RequestAll(context);
    writing.free = AwaitAnswers();
    if (writing.free) {
      RunOnReportStack(WriteAnswers, &writing);
    } else {
      WriteAnswers(&writing);
    }
  } else {
    // Without the guard, a corrupt stack would crash the program.
    text << "no stacks: the program has a handler of SIGSEGV or SIGBUS that the agent does not know\n";
  }
  text << "end of stacks\n";
  text.WriteTo(-1);
  if (!writing.free) return;
  entry_count.store(0, std::memory_order_release);
  ReleaseReportLock();
}

// Takes the requests that arrived meanwhile.
void TakeWaiting() {
  for (auto& slot : waiting) {
    const std::uint64_t taken = slot.exchange(0, std::memory_order_acq_rel);
    if (taken != 0 && request_count < std::size(requests))
      requests[request_count++] = static_cast<std::uint32_t>(taken);
  }
}

bool AnyWaits() {
  return std::any_of(std::begin(waiting), std::end(waiting),
                     [](const auto& slot) { return slot.load(std::memory_order_acquire) != 0; });
}

void Wait(std::uint32_t request) {
  // Bit 32 distinguishes request 0 from an empty slot.
  const std::uint64_t value = std::uint64_t{1} << 32 | request;
  for (auto& slot : waiting) {
    std::uint64_t free = 0;
    if (slot.compare_exchange_strong(free, value, std::memory_order_acq_rel)) return;
  }
}

}  // namespace

bool PrepareStacks(const char* path, int signal_number) {
  const std::size_t length = std::strlen(path);
  if (length == 0 || length >= sizeof stack_path) return false;
  std::memcpy(stack_path, path, length + 1);
  stack_signal = signal_number;
  return true;
}

void SetPythonStacks(void (*handler)(int), int descriptor, PythonDump dump) {
  python_descriptor.store(descriptor, std::memory_order_relaxed);
  python_dump.store(dump, std::memory_order_relaxed);
  python_handler.store(handler, std::memory_order_release);
}

void WriteStacks(std::uint32_t request, void* context) {
  Wait(request);
  // The holder of the lock checks for waiting requests after it releases the lock, and so does this thread: a request
  // is not lost between the two.
  while (AnyWaits() && AcquireReportLock(Thread(), 0)) {
    request_count = 0;
    TakeWaiting();
    const int file = request_count > 0 ? OpenStacks() : -1;
    if (file < 0) {
      ReleaseReportLock();
      continue;
    }
    WriteTo(file, context);
    close(file);
  }
}

void AnswerWithStack(void* context) {
  const int thread = static_cast<int>(Thread());
  Entry* const entry = EntryOf(thread);
  if (entry == nullptr) return;
  while (entry->answer.load(std::memory_order_relaxed) == kRequested) {
    if (answer_lock.test_and_set(std::memory_order_acquire)) {
      const timespec pause{0, 100'000};
      nanosleep(&pause, nullptr);
      continue;
    }
    int requested = kRequested;
    const bool mine = entry->answer.compare_exchange_strong(requested, kAnswering, std::memory_order_acq_rel);
    bool abandoned = false;
    // Read before answering: the writer increments it only after the last answer.
    const std::uint32_t seen = release_count.load(std::memory_order_acquire);
    if (mine && entry->thread.load(std::memory_order_relaxed) != thread) {
      // The list was rebuilt while this thread looked for its entry, and this entry belongs to another thread.
      entry->answer.store(kRequested, std::memory_order_release);
      answer_lock.clear(std::memory_order_release);
      return;
    }
    if (mine) {
      Reading own_stack{entry, context};
      RunOnReportStack(ReadInto, &own_stack);
      // Release: pairs with the acquire in AnyIs.
      abandoned = entry->answer.exchange(kAnswered, std::memory_order_acq_rel) == kAbandoned;
    }
    answer_lock.clear(std::memory_order_release);
    if (!mine) return;
    if (abandoned) {
      entry_count.store(0, std::memory_order_release);
      ReleaseReportLock();
    }
    answers.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &answers, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    if (!abandoned && python_handler.load(std::memory_order_relaxed) != nullptr) WaitForRelease(seen);
  }
}

}  // namespace fulldeck::agent
