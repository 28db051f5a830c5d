// Classifies what a thread waits for, from /proc: a lock, a sleep, or a file or socket. A rank whose main thread waits
// for a file or socket (an upload of a checkpoint, a slow file system) is not stuck yet; one that sleeps may be. Pure:
// the caller reads /proc.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace fulldeck::diagnosis {

enum class WaitKind {
  kUnknown,  // not shown by /proc
  kRunning,  // not waiting
  kLock,     // a futex without timeout that only a thread of the same process can release
  kSleep,    // any other wait that is not I/O: a timer, a futex with timeout, a child, a device driver
  kIo,       // a file, pipe or socket, the descriptors of poll and the like, or state D
};

struct ThreadWait {
  WaitKind kind = WaitKind::kUnknown;
  std::string call;  // "recvfrom"; empty: not in a system call, or unknown
  std::string on;    // "socket", "pipe", "descriptors", a file's path; empty: none
};

// `syscall`: first line of /proc/PID/task/TID/syscall; empty: not readable. `wait_channel`: content of wchan, used if
// syscall is not readable. `state`: from stat. `target_of`: link of a descriptor, "socket:[4711]"; empty: unknown.
ThreadWait ClassifyWait(std::string_view syscall, std::string_view wait_channel, char state,
                        const std::function<std::string(int)>& target_of);

// Whether a thread with this name only serves torch's or fulldeck's communication or monitoring. Such a thread always
// waits for descriptors and timers and never takes or releases a lock of the program.
bool ServesCommunication(std::string_view thread_name);

// Whether a handled signal ends the wait early regardless of the handler's flags, as for sleeps and poll. A C program
// may treat that as the end of its wait; Python waits again.
bool EndsAtASignal(const ThreadWait& wait);

// "in recvfrom on socket"; "in futex"; empty: unknown.
std::string Describe(const ThreadWait& wait);

}  // namespace fulldeck::diagnosis
