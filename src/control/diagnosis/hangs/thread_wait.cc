#include "diagnosis/hangs/thread_wait.h"

#include <linux/futex.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/text.h"
#include "diagnosis/hangs/stack_dump.h"

namespace fulldeck::diagnosis {
namespace {

using std::string_view;

template <std::size_t N>
bool IsOneOf(string_view name, const std::array<string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The first argument is the descriptor.
constexpr std::array<string_view, 25> kDescriptorCalls = {
    "read",      "write",   "readv", "writev",     "pread64",   "pwrite64",  "preadv",  "pwritev",  "fsync",
    "fdatasync", "syncfs",  "flock", "fcntl",      "connect",   "accept",    "accept4", "recvfrom", "recvmsg",
    "sendto",    "sendmsg", "close", "getdents64", "ftruncate", "fallocate", "recvmmsg"};
constexpr std::array<string_view, 18> kFileSystemCalls = {
    "open",     "openat",  "rename",          "renameat",     "renameat2",      "unlink",
    "unlinkat", "mkdirat", "newfstatat",      "statx",        "sync",           "msync",
    "sendfile", "splice",  "copy_file_range", "io_getevents", "io_uring_enter", "readlinkat"};
constexpr std::array<string_view, 2> kEventCalls = {"epoll_wait", "epoll_pwait"};
constexpr std::array<string_view, 12> kSleepCalls = {"nanosleep",       "clock_nanosleep", "pause",  "rt_sigsuspend",
                                                     "rt_sigtimedwait", "wait4",           "waitid", "msgrcv",
                                                     "semtimedop",      "sched_yield",     "ioctl",  "getrandom"};

std::uint64_t Argument(const std::vector<string_view>& words, std::size_t index) {
  if (index + 1 >= words.size()) return 0;
  string_view word = words[index + 1];
  if (word.starts_with("0x")) word.remove_prefix(2);
  return base::ParseInteger<std::uint64_t>(word, 16).value_or(0);
}

WaitKind KindOfFutex(std::uint64_t operation, std::uint64_t timeout) {
  const auto command = static_cast<int>(operation) & FUTEX_CMD_MASK;
  const bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET || command == FUTEX_LOCK_PI ||
                     command == 13 /* FUTEX_LOCK_PI2, Linux 5.14 */;
  // Without the private flag, another process may end the wait.
  return waits && (operation & FUTEX_PRIVATE_FLAG) != 0 && timeout == 0 ? WaitKind::kLock : WaitKind::kSleep;
}

ThreadWait OnDescriptor(ThreadWait wait, const std::string& target) {
  wait.kind = WaitKind::kIo;
  if (target.starts_with("socket:")) {
    wait.on = "socket";
  } else if (target.starts_with("pipe:")) {
    wait.on = "pipe";
  } else if (target.starts_with("anon_inode:")) {
    // eventfd, timerfd, pidfd …: another thread, a timer or a process ends the wait.
    wait.kind = WaitKind::kSleep;
    wait.on = target.substr(std::string("anon_inode:").size());
  } else if (target.starts_with("/dev/") && !target.starts_with("/dev/pts/") && !target.starts_with("/dev/tty")) {
    wait.kind = target.starts_with("/dev/shm/") ? WaitKind::kIo : WaitKind::kSleep;
    wait.on = base::Printable(target);
  } else {
    wait.on = base::Printable(target);
  }
  return wait;
}

// Names from several kernel versions. Several substrings are checked, because inlining varies.
WaitKind KindOfChannel(string_view channel) {
  if (channel.empty()) return WaitKind::kUnknown;
  const auto has = [&](string_view part) { return channel.find(part) != string_view::npos; };
  if (has("futex") || has("nanosleep") || has("do_wait") || has("sigsuspend") || has("sigtimedwait")) {
    return WaitKind::kSleep;
  }
  static constexpr std::array<string_view, 22> kIoParts = {
      "poll",  "select", "sk_wait", "sock", "skb",  "inet_", "tcp_", "unix_", "wait_woken", "pipe",  "io_schedule",
      "folio", "page",   "nfs",     "rpc_", "fuse", "jbd2",  "xfs_", "ext4",  "writeback",  "btrfs", "read"};
  return std::any_of(kIoParts.begin(), kIoParts.end(), has) ? WaitKind::kIo : WaitKind::kUnknown;
}

}  // namespace

ThreadWait ClassifyWait(string_view syscall, string_view wait_channel, char state,
                        const std::function<std::string(int)>& target_of) {
  ThreadWait wait;
  const std::vector<string_view> words = base::Split(syscall, ' ');
  const auto number = words.empty() ? std::nullopt : base::ParseInteger<long>(words[0]);
  if (number && *number >= 0) wait.call = SystemCallName(*number);
  if (state == 'R' || syscall == "running") {
    wait.kind = WaitKind::kRunning;
    return wait;
  }
  if (number && *number >= 0) {
    const string_view call = wait.call;
    if (call == "futex") {
      wait.kind = KindOfFutex(Argument(words, 1), Argument(words, 3));
    } else if (IsOneOf(call, kDescriptorCalls)) {
      wait = OnDescriptor(std::move(wait), target_of(static_cast<int>(Argument(words, 0))));
    } else if (IsOneOf(call, kFileSystemCalls)) {
      wait.kind = WaitKind::kIo;
    } else if (IsOneOf(call, kEventCalls)) {
      wait.kind = WaitKind::kIo;
      wait.on = "descriptors";
    } else if (call == "poll" || call == "ppoll" || call == "select" || call == "pselect6") {
      // Without descriptors it is a sleep; older Pythons sleep this way.
      const bool any = Argument(words, call.ends_with("poll") ? 1 : 0) > 0;
      wait.kind = any ? WaitKind::kIo : WaitKind::kSleep;
      if (any) wait.on = "descriptors";
    } else if (IsOneOf(call, kSleepCalls)) {
      wait.kind = WaitKind::kSleep;
    }
  }
  if (wait.kind == WaitKind::kUnknown) wait.kind = KindOfChannel(wait_channel);
  // Uninterruptible: a disk, a network file system, a page fault on a file.
  if (state == 'D') wait.kind = WaitKind::kIo;
  return wait;
}

bool ServesCommunication(string_view thread_name) {
  return thread_name == "fulldeck-helper" || thread_name == "fulldeck_record" ||
         thread_name.starts_with("gloo_tcp_loop") || thread_name.starts_with("pt_gloo_") ||
         thread_name.starts_with("pt_tcpstore");
}

bool EndsAtASignal(const ThreadWait& wait) {
  static constexpr std::array<string_view, 14> kNeverRestarted = {
      "nanosleep",   "clock_nanosleep", "poll",  "ppoll",         "select",          "pselect6",   "epoll_wait",
      "epoll_pwait", "io_getevents",    "pause", "rt_sigsuspend", "rt_sigtimedwait", "semtimedop", "msgrcv"};
  return IsOneOf(wait.call, kNeverRestarted);
}

std::string Describe(const ThreadWait& wait) {
  if (wait.kind == WaitKind::kRunning || wait.call.empty()) return "";
  return "in " + wait.call + (wait.on.empty() ? "" : " on " + wait.on);
}

}  // namespace fulldeck::diagnosis
