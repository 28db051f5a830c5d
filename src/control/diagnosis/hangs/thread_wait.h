// What a thread waits for, from what /proc shows of it: a lock, a sleep, or a file or socket. A rank whose main thread
// waits for a file or socket (a checkpoint on its way to a store, a file system that answers slowly) is not stuck yet;
// one that sleeps may be. Pure: the caller reads /proc.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace fulldeck::diagnosis {

enum class WaitKind {
  kUnknown,  // /proc does not show it
  kRunning,  // it waits for nothing
  kLock,     // a futex without timeout that only a thread of the same process can end
  kSleep,    // any other wait that is not I/O: a timer, a futex with timeout, a child, a device driver
  kIo,       // a file, pipe or socket, the set of descriptors of poll and the like, or state D
};

struct ThreadWait {
  WaitKind kind = WaitKind::kUnknown;
  std::string call;  // "recvfrom"; empty: in no system call, or not known
  std::string on;    // "socket", "pipe", "descriptors", a file's path; empty: none
};

// `syscall`: the first line of /proc/PID/task/TID/syscall; empty: not readable. `wait_channel`: of wchan, used where
// syscall cannot be read. `state`: of stat. `target_of`: link of a descriptor, "socket:[4711]"; empty: not known.
ThreadWait ClassifyWait(std::string_view syscall, std::string_view wait_channel, char state,
                        const std::function<std::string(int)>& target_of);

// Whether a thread of this name only serves torch's and our own communication or watching: it waits for descriptors and
// timers all the time and never takes or releases a lock of the program.
bool ServesCommunication(std::string_view thread_name);

// Whether the wait ends early when the thread handles a signal, whatever the handler's flags are: sleeps and poll do. A
// program in C may take that for the end of its wait; Python waits again.
bool EndsAtASignal(const ThreadWait& wait);

// "in recvfrom on socket"; "in futex"; empty: not known.
std::string Describe(const ThreadWait& wait);

}  // namespace fulldeck::diagnosis
