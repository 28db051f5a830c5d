#include "agent/own_threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fulldeck::agent {
namespace {

// Layout of getdents64.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t length;
  unsigned char type;
  char name[1];
};

alignas(Entry) char entries[8192];
char file_text[4096];

// Reads up to sizeof file_text - 1 bytes of "/proc/self/task/THREAD/FILE"; false: it cannot be read.
bool ReadThreadFile(int thread, const char* name) {
  char path[64] = "/proc/self/task/";
  char digits[12];
  std::size_t first = sizeof digits;
  for (int rest = thread; rest != 0; rest /= 10) digits[--first] = static_cast<char>('0' + rest % 10);
  std::size_t length = std::strlen(path);
  while (first < sizeof digits) path[length++] = digits[first++];
  path[length++] = '/';
  std::strncpy(path + length, name, sizeof path - length - 1);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::size_t held = 0;
  while (held < sizeof file_text - 1) {
    const ssize_t got = read(file, file_text + held, sizeof file_text - 1 - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
  }
  close(file);
  file_text[held] = '\0';
  return held > 0;
}

// The value after "\nKEY:\t" in file_text; nullptr: no such line.
const char* Field(const char* key) {
  const char* const found = std::strstr(file_text, key);
  return found != nullptr ? found + std::strlen(key) : nullptr;
}

std::uint64_t Hex(const char* text) {
  std::uint64_t number = 0;
  for (;; ++text) {
    if (*text >= '0' && *text <= '9') {
      number = number << 4 | static_cast<std::uint64_t>(*text - '0');
    } else if (*text >= 'a' && *text <= 'f') {
      number = number << 4 | static_cast<std::uint64_t>(*text - 'a' + 10);
    } else {
      return number;
    }
  }
}

template <std::size_t size>
void CopyWord(char (&into)[size], const char* from, const char* ends) {
  std::size_t length = 0;
  for (; length + 1 < size && from[length] != '\0' && std::strchr(ends, from[length]) == nullptr; ++length) {
    into[length] = from[length];
  }
  into[length] = '\0';
}

}  // namespace

std::size_t ListThreads(int* threads, std::size_t most, bool& more) {
  more = false;
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return 0;
  std::size_t count = 0;
  for (;;) {
    const long got = syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      const auto* const entry = reinterpret_cast<const Entry*>(entries + at);
      at += entry->length;
      int thread = 0;
      for (const char* digit = entries + at - entry->length + offsetof(Entry, name); *digit >= '0' && *digit <= '9';
           ++digit) {
        thread = thread * 10 + (*digit - '0');
      }
      if (thread == 0) continue;
      if (count == most) {
        more = true;
      } else {
        threads[count++] = thread;
      }
    }
  }
  close(folder);
  return count;
}

bool ReadStatus(int thread, ThreadStatus& status) {
  status = {};
  if (!ReadThreadFile(thread, "status")) return false;
  if (const char* const name = Field("Name:\t")) CopyWord(status.name, name, "\n");
  const char* const state = Field("\nState:\t");
  status.state = state != nullptr ? *state : '?';
  const char* const blocked = Field("\nSigBlk:\t");
  status.blocked = blocked != nullptr ? Hex(blocked) : 0;
  return status.state != 'Z' && status.state != 'X';
}

void ReadPlace(int thread, ThreadPlace& place) {
  place = {};
  if (ReadThreadFile(thread, "syscall")) {
    CopyWord(place.call, file_text, " \n");
    // The last field, after the stack pointer.
    const char* const last = std::strrchr(file_text, ' ');
    if (last != nullptr && std::strncmp(last, " 0x", 3) == 0) place.counter = Hex(last + 3);
  }
  if (ReadThreadFile(thread, "wchan") && std::strcmp(file_text, "0") != 0) CopyWord(place.channel, file_text, " \n");
}

}  // namespace fulldeck::agent
