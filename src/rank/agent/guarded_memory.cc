#include "agent/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fulldeck::agent {

char* GuardedMemory(std::size_t size) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  mprotect(memory, page, PROT_NONE);
  return static_cast<char*>(memory) + page;
}

}  // namespace fulldeck::agent
