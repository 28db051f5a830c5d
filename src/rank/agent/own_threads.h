// The threads of this process according to /proc, read in a signal handler: no allocation, no lock. One thread at a
// time (report_lock.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::agent {

// Fills `threads` with at most `most` tids of this process and returns their number; sets `more` if there are others.
// 0: /proc cannot be read.
std::size_t ListThreads(int* threads, std::size_t most, bool& more);

struct ThreadStatus {
  char name[16];
  char state;             // R, S, D …
  std::uint64_t blocked;  // signals: bit n - 1 for signal n
};
// False: the thread has exited.
bool ReadStatus(int thread, ThreadStatus& status);

struct ThreadPlace {
  char call[24];           // system call number "202", or "running"; empty: not readable
  std::uintptr_t counter;  // program counter; 0: not readable
  char channel[48];        // kernel function; empty: none
};
void ReadPlace(int thread, ThreadPlace& place);

}  // namespace fulldeck::agent
