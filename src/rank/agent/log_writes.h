// A rank's standard output and error are files of the launcher. If their disk is full, or a file has reached its limit,
// logging must not end a training that would have printed to a terminal without error: Python raises OSError from
// print. Such a write reports success, and the lost bytes are counted on the board.
//
// Only for those files, identified by device and inode, under any descriptor; every other write fails as usual. Does
// not cover programs that call the kernel without the C library (static ones), nor the C library's own stdio, which
// records the error and continues.
#pragma once

#include <sys/types.h>

#include <cstddef>

typedef struct fulldeck_board fulldeck_board;

namespace fulldeck::agent {

// The logs are stdout.log and stderr.log next to the crash file. Call once, before there are other threads. `board` may
// be NULL; otherwise it must stay open.
void ProtectLogs(const char* crash_file, fulldeck_board* board);

// The return value for a write of `bytes`, given the kernel's result (and errno). Async-signal-safe.
ssize_t AnswerOfWrite(int fd, std::size_t bytes, ssize_t result);

}  // namespace fulldeck::agent
