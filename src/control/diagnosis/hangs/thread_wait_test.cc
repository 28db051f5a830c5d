#include "diagnosis/hangs/thread_wait.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace fulldeck::diagnosis {
namespace {

std::string Call(long number, const std::string& arguments) {
  return std::to_string(number) + " " + arguments + " 0x7ffe 0x7f00";
}

std::string TargetOf(int descriptor) {
  switch (descriptor) {
    case 3:
      return "socket:[4711]";
    case 4:
      return "pipe:[12]";
    case 5:
      return "/data/checkpoint.pt";
    case 6:
      return "anon_inode:[eventfd]";
    case 7:
      return "/dev/gcu0";
    case 8:
      return "/dev/shm/state";
    default:
      return "";
  }
}

TEST(ThreadWait, IsDerivedFromTheSystemCallAndItsDescriptor) {
  struct Row {
    const char* what;
    std::string syscall;
    char state;
    WaitKind kind;
    const char* on;
  };
  const Row rows[] = {
      {"a download", Call(SYS_recvfrom, "0x3 0x7f 0x400 0x0 0x0 0x0"), 'S', WaitKind::kIo, "socket"},
      {"a FIFO", Call(SYS_read, "0x4 0x7f 0x400 0x0 0x0 0x0"), 'S', WaitKind::kIo, "pipe"},
      {"a slow disk", Call(SYS_fsync, "0x5 0x0 0x0 0x0 0x0 0x0"), 'D', WaitKind::kIo, "/data/checkpoint.pt"},
      {"a file in memory", Call(SYS_read, "0x8 0x0 0x0 0x0 0x0 0x0"), 'S', WaitKind::kIo, "/dev/shm/state"},
      {"another thread's event", Call(SYS_read, "0x6 0x7f 0x8 0x0 0x0 0x0"), 'S', WaitKind::kSleep, "[eventfd]"},
      {"a card", Call(SYS_read, "0x7 0x7f 0x8 0x0 0x0 0x0"), 'S', WaitKind::kSleep, "/dev/gcu0"},
      {"an event loop", Call(SYS_epoll_pwait, "0x9 0x7f 0x40 0xa 0x0 0x0"), 'S', WaitKind::kIo, "descriptors"},
      {"poll of a socket", Call(SYS_ppoll, "0x7f 0x1 0x0 0x0 0x0 0x0"), 'S', WaitKind::kIo, "descriptors"},
      {"poll of nothing", Call(SYS_ppoll, "0x0 0x0 0x7f 0x0 0x0 0x0"), 'S', WaitKind::kSleep, ""},
      {"an old time.sleep", Call(SYS_pselect6, "0x0 0x0 0x0 0x0 0x7f 0x0"), 'S', WaitKind::kSleep, ""},
      {"time.sleep", Call(SYS_clock_nanosleep, "0x1 0x1 0x7f 0x0 0x0 0x0"), 'S', WaitKind::kSleep, ""},
      {"a lock", Call(SYS_futex, "0x55 0x189 0x0 0x0 0x0 0xffffffff"), 'S', WaitKind::kLock, ""},
      {"a mutex", Call(SYS_futex, "0x55 0x80 0x2 0x0 0x0 0x0"), 'S', WaitKind::kLock, ""},
      {"a lock with timeout", Call(SYS_futex, "0x55 0x189 0x0 0x7f 0x0 0xffffffff"), 'S', WaitKind::kSleep, ""},
      {"a lock of two processes", Call(SYS_futex, "0x55 0x109 0x0 0x0 0x0 0xffffffff"), 'S', WaitKind::kSleep, ""},
      {"a child", Call(SYS_wait4, "0x55 0x0 0x0 0x0 0x0 0x0"), 'S', WaitKind::kSleep, ""},
      {"nothing", "running", 'R', WaitKind::kRunning, ""},
      {"a page from a disk", "-1 0x7f 0x7f", 'D', WaitKind::kIo, ""},
      {"a call of tomorrow", Call(9999, "0x0 0x0 0x0 0x0 0x0 0x0"), 'S', WaitKind::kUnknown, ""},
  };
  for (const Row& row : rows) {
    const ThreadWait wait = ClassifyWait(row.syscall, "", row.state, TargetOf);
    EXPECT_EQ(wait.kind, row.kind) << row.what;
    EXPECT_EQ(wait.on, row.on) << row.what;
  }
}

TEST(ThreadWait, IsDerivedFromTheWaitChannelWhereTheSystemCallIsNotReadable) {
  const std::pair<const char*, WaitKind> rows[] = {{"futex_wait_queue", WaitKind::kSleep},
                                                   {"hrtimer_nanosleep", WaitKind::kSleep},
                                                   {"do_wait", WaitKind::kSleep},
                                                   {"do_epoll_wait", WaitKind::kIo},
                                                   {"do_sys_poll", WaitKind::kIo},
                                                   {"wait_woken", WaitKind::kIo},
                                                   {"anon_pipe_read", WaitKind::kIo},
                                                   {"folio_wait_bit_common", WaitKind::kIo},
                                                   {"rpc_wait_bit_killable", WaitKind::kIo},
                                                   {"", WaitKind::kUnknown},
                                                   {"something_new", WaitKind::kUnknown}};
  for (const auto& [channel, kind] : rows) EXPECT_EQ(ClassifyWait("", channel, 'S', TargetOf).kind, kind) << channel;
  EXPECT_EQ(ClassifyWait("", "", 'D', TargetOf).kind, WaitKind::kIo);
}

TEST(ThreadWait, OfWhichItIsKnownThatASignalEndsIt) {
  for (const char* call : {"clock_nanosleep", "poll", "epoll_wait", "pselect6"}) {
    EXPECT_TRUE(EndsAtASignal({WaitKind::kSleep, call, ""})) << call;
  }
  for (const char* call : {"recvfrom", "read", "futex", "wait4", ""}) {
    EXPECT_FALSE(EndsAtASignal({WaitKind::kIo, call, ""})) << call;
  }
}

TEST(ThreadWait, OnlyThreadsThatServeCommunicationAreNamedSo) {
  for (const char* name :
       {"gloo_tcp_loop", "pt_gloo_runloop", "pt_tcpstore_uv", "fulldeck_record", "fulldeck-helper"}) {
    EXPECT_TRUE(ServesCommunication(name)) << name;
  }
  for (const char* name : {"python", "fulldeck-data", "fulldeck-save", "pt_data_pin", "pt_autograd_0"}) {
    EXPECT_FALSE(ServesCommunication(name)) << name;
  }
}

}  // namespace
}  // namespace fulldeck::diagnosis
