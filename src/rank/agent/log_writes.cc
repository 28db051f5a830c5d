#include "agent/log_writes.h"

#include <limits.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "fulldeck/rank_board.h"

namespace fulldeck::agent {
namespace {

struct LogFile {
  dev_t device = 0;
  ino_t inode = 0;  // 0: none
};
// Written once by ProtectLogs. The release store of logs_known pairs with the acquire load in IsLog.
LogFile logs[2];
fulldeck_board* logs_board = nullptr;
std::atomic<bool> logs_known{false};

bool IsLog(int fd) {
  if (!logs_known.load(std::memory_order_acquire)) return false;
  struct stat facts {};
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  for (const LogFile& log : logs) {
    if (log.inode != 0 && log.inode == facts.st_ino && log.device == facts.st_dev) return true;
  }
  return false;
}

}  // namespace

void ProtectLogs(const char* crash_file, fulldeck_board* board) {
  const char* const slash = crash_file != nullptr ? std::strrchr(crash_file, '/') : nullptr;
  if (slash == nullptr) return;
  const auto length = static_cast<std::size_t>(slash - crash_file);
  constexpr const char* kNames[] = {"/stdout.log", "/stderr.log"};
  for (int i = 0; i < 2; ++i) {
    char path[PATH_MAX];
    if (length + std::strlen(kNames[i]) >= sizeof path) return;
    std::memcpy(path, crash_file, length);
    std::strcpy(path + length, kNames[i]);
    struct stat facts {};
    if (stat(path, &facts) == 0) logs[i] = {facts.st_dev, facts.st_ino};
  }
  logs_board = board;
  logs_known.store(true, std::memory_order_release);
}

ssize_t AnswerOfWrite(int fd, std::size_t bytes, ssize_t result) {
  if (result >= 0 || (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)) return result;
  const int error = errno;
  if (!IsLog(fd)) {
    errno = error;
    return result;
  }
  fulldeck_board_log_lost(logs_board, bytes);
  return static_cast<ssize_t>(bytes);
}

}  // namespace fulldeck::agent
