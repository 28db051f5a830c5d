#include "agent/board_identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/log.h"
#include "fulldeck/rank_board.h"
#include "wire/exit_codes.h"
#include "wire/variables.h"

namespace fulldeck::agent {

fulldeck_board* WriteIdentity(const char* program, bool last) {
  fulldeck_board* board = nullptr;
  const int result = fulldeck_board_open(&board);
  if (result == -ENOENT) return nullptr;
  if (result == -EPROTO) {
    base::Log(base::Severity::kError, fulldeck_board_error());
    _exit(static_cast<int>(wire::ExitCode::kOtherVersion));
  }
  if (result != 0) base::Log(base::Severity::kWarning, fulldeck_board_error());
  fulldeck_board_identity(board, FULLDECK_BOARD_AGENT, program);
  const char* const descriptor = std::getenv(wire::kBoardFdVariable);
  if (last && result != -EINVAL && descriptor != nullptr) {
    fcntl(static_cast<int>(std::strtol(descriptor, nullptr, 10)), F_SETFD, FD_CLOEXEC);
  }
  if (last) return board;
  fulldeck_board_close(board);
  return nullptr;
}

}  // namespace fulldeck::agent
