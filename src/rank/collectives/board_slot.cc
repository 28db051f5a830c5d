#include "collectives/board_slot.h"

#include <mutex>

#include "fulldeck/rank_board.h"

namespace fulldeck::collectives {
namespace {

// One mapping of the board for all groups of the process.
std::shared_ptr<fulldeck_board> BoardOfThisProcess() {
  static std::mutex mutex;
  static std::weak_ptr<fulldeck_board> known;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<fulldeck_board> board = known.lock()) return board;
  fulldeck_board* opened = nullptr;
  if (fulldeck_board_open(&opened) != 0) return nullptr;
  std::shared_ptr<fulldeck_board> board(opened, fulldeck_board_close);
  known = board;
  return board;
}

std::uint32_t FailureCodeOf(int status_code) {
  switch (status_code) {
    case FULLDECK_ERROR_PEER_LOST:
      return FULLDECK_BOARD_FAILURE_PEER_LOST;
    case FULLDECK_ERROR_MISMATCH:
      return FULLDECK_BOARD_FAILURE_DIFFERENT_CALLS;
    case FULLDECK_ERROR_TIMEOUT:
      return FULLDECK_BOARD_FAILURE_TIMEOUT;
    default:
      return FULLDECK_BOARD_FAILURE_OTHER;
  }
}

}  // namespace

BoardSlot::BoardSlot(std::uint64_t group, const std::string& name, int size, int rank) : board_(BoardOfThisProcess()) {
  if (board_ == nullptr) return;
  slot_ = fulldeck_board_group_join(board_.get(), group, name.c_str(), static_cast<std::uint32_t>(size),
                                    static_cast<std::uint32_t>(rank));
}

BoardSlot::~BoardSlot() {
  if (board_ != nullptr) fulldeck_board_group_leave(board_.get(), slot_);
}

void BoardSlot::Begin(const Call& call, std::uint64_t sequence, std::uint64_t bytes) {
  if (slot_ < 0) return;
  fulldeck_board_collective record = {};
  record.struct_bytes = sizeof record;
  record.operation = BoardOperation(call.operation);
  record.datatype = call.operation == Operation::kBarrier ? static_cast<std::uint32_t>(FULLDECK_BOARD_NO_DATA)
                                                          : BoardDatatype(call.datatype);
  record.root = call.root;
  record.count = call.count;
  record.bytes = bytes;
  record.sequence = sequence;
  record.fingerprint = call.Fingerprint();
  fulldeck_board_collective_begin(board_.get(), slot_, &record);
}

void BoardSlot::BeginRendezvous() {
  if (slot_ < 0) return;
  fulldeck_board_collective record = {};
  record.struct_bytes = sizeof record;
  record.operation = FULLDECK_BOARD_MEETING;
  record.root = -1;
  record.fingerprint = 1;
  fulldeck_board_collective_begin(board_.get(), slot_, &record);
}

std::uint64_t BoardSlot::BeginMessage(bool is_send, int peer, std::uint64_t bytes) {
  if (slot_ < 0) return 0;
  fulldeck_board_collective record = {};
  record.struct_bytes = sizeof record;
  record.operation = is_send ? FULLDECK_BOARD_SEND : FULLDECK_BOARD_RECEIVE;
  record.datatype = FULLDECK_BOARD_UINT8;
  record.root = peer;
  record.count = bytes;
  record.bytes = bytes;
  record.fingerprint = 1;  // ranks send different data: there is nothing to compare
  return fulldeck_board_collective_begin(board_.get(), slot_, &record);
}

void BoardSlot::End(std::uint64_t sequence) {
  fulldeck_board_collective_end(board_.get(), slot_, sequence);
}

void BoardSlot::ReportError(const Status& status, int culprit) {
  fulldeck_board_set_failure(board_.get(), FailureCodeOf(status.code()), culprit, status.text().c_str());
}

std::uint64_t MessageBoard::Begin(bool is_send, int peer, std::uint64_t bytes) {
  if (!slot_) slot_.emplace(group_, name_, size_, rank_);
  const std::uint64_t number = slot_->BeginMessage(is_send, peer, bytes);
  if (number == 0) return 0;
  open_.insert(number);
  newest_ = number;
  return number;
}

void MessageBoard::End(std::uint64_t number) {
  if (open_.erase(number) == 0) return;
  slot_->End(open_.empty() ? newest_ : *open_.begin() - 1);
}

}  // namespace fulldeck::collectives
