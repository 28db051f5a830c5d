// The threads of this process as the kernel shows them to it, read in a signal handler: no allocation, no lock.
// One thread at a time (report_lock.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fulldeck::agent {

// Fills `threads` with the tids of this process, at most `most`; `more` when there are others. 0: /proc cannot be read.
std::size_t ListThreads(int* threads, std::size_t most, bool& more);

struct ThreadStatus {
  char name[16];
  char state;             // R, S, D …
  std::uint64_t blocked;  // signals: bit n - 1 for signal n
};
// False: the thread has ended.
bool ReadStatus(int thread, ThreadStatus& status);

struct ThreadPlace {
  char call[24];           // "202", "running"; empty: not to be seen
  std::uintptr_t counter;  // 0: not to be seen
  char channel[48];        // kernel function; empty: none
};
void ReadPlace(int thread, ThreadPlace& place);

}  // namespace fulldeck::agent
