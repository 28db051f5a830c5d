// A rank's standard output and error are files of the launcher's. When their disk is full, or a file has reached its
// limit, the launcher's logging must not end a training that would have printed to a terminal without a care: Python
// raises OSError from print. Such a write is answered as if it were done, and the bytes are counted on the board.
//
// Only for those files, by device and inode, under whatever descriptor; every other write fails as ever. Programs that
// call the kernel without the C library (static ones) are not reached, nor is the C library's own stdio, which notes
// the error and goes on.
#pragma once

#include <sys/types.h>

#include <cstddef>

typedef struct fulldeck_board fulldeck_board;

namespace fulldeck::agent {

// The logs are stdout.log and stderr.log next to the crash file. Call once, before there are other threads. `board` may
// be NULL, and else stays open.
void ProtectLogs(const char* crash_file, fulldeck_board* board);

// What a write of `bytes` answers, given what the kernel answered (and errno). Async-signal-safe.
ssize_t AnswerOfWrite(int fd, std::size_t bytes, ssize_t result);

}  // namespace fulldeck::agent
