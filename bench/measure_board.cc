// measure_board [CALLS]: the cost of each call of include/fulldeck/rank_board.h for a rank, and of each read for a
// reader, with and without a second thread that reads (or writes) all the time. Prints table rows, in nanoseconds per
// call.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "fulldeck/rank_board.h"
#include "wire/rank_board.h"
#include "wire/variables.h"

namespace {

using fulldeck::wire::RankBoard;

template <typename Call>
double Nanoseconds(long calls, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (long i = 0; i < calls; ++i) call(static_cast<std::uint64_t>(i));
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(calls);
}

// Measures `call` by itself, and while `other` runs continuously in another thread.
template <typename Call, typename Other>
void Row(const char* title, long calls, const Call& call, const Other& other) {
  const double alone = Nanoseconds(calls, call);
  std::atomic<bool> stop{false};
  std::atomic<bool> runs{false};
  std::thread thread([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      other();
      runs.store(true, std::memory_order_relaxed);
    }
  });
  while (!runs.load(std::memory_order_relaxed)) std::this_thread::yield();
  const double together = Nanoseconds(calls, call);
  stop.store(true, std::memory_order_relaxed);
  thread.join();
  std::printf("| %s | %.0f ns | %.0f ns |\n", title, alone, together);
}

}  // namespace

int main(int argc, char** argv) {
  const long calls = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 1'000'000;
  auto made = RankBoard::Create({"bench", 0, 1, 0, 1});
  if (!made) {
    std::fprintf(stderr, "measure_board: %s\n", made.error().message.c_str());
    return 1;
  }
  const RankBoard& reader = *made;
  setenv(fulldeck::wire::kBoardFdVariable, std::to_string(reader.fd()).c_str(), 1);
  setenv(fulldeck::wire::kBoardSlotVariable, "0", 1);
  fulldeck_board* board = nullptr;
  if (fulldeck_board_open(&board) != 0) {
    std::fprintf(stderr, "measure_board: %s\n", fulldeck_board_error());
    return 1;
  }
  const int slot = fulldeck_board_group_join(board, 1, "world", 8, 0);
  fulldeck_board_figures figures{};
  figures.struct_bytes = sizeof figures;
  fulldeck_board_collective call{};
  call.struct_bytes = sizeof call;
  call.operation = FULLDECK_BOARD_ALL_REDUCE;

  const auto read_loop = [&] { reader.ReadLoop(0); };
  const auto read_group = [&] { reader.ReadCollective(0, 0); };
  const auto step = [&](std::uint64_t i) {
    figures.step = i;
    fulldeck_board_step(board, &figures);
  };
  std::puts("| call | alone | beside a thread that never pauses |\n|---|---|---|");
  Row("`fulldeck_board_step`", calls, step, read_loop);
  Row(
      "`fulldeck_board_phase`", calls,
      [&](std::uint64_t i) { fulldeck_board_phase(board, i % 2 == 0 ? FULLDECK_BOARD_DATA : FULLDECK_BOARD_COMPUTE); },
      read_loop);
  Row(
      "`fulldeck_board_heartbeat`", calls, [&](std::uint64_t) { fulldeck_board_heartbeat(board); },
      [&] { reader.ReadHeartbeat(0); });
  Row(
      "`fulldeck_board_collective_begin` and `_end`", calls,
      [&](std::uint64_t) {
        fulldeck_board_collective_end(board, slot, fulldeck_board_collective_begin(board, slot, &call));
      },
      read_group);
  Row(
      "`fulldeck_board_set_error`, 400 bytes", calls,
      [&, text = std::string(400, 'e')](std::uint64_t) { fulldeck_board_set_error(board, text.c_str()); },
      [&] { reader.ReadError(0); });
  Row(
      "`RankBoard::ReadLoop`", calls, [&](std::uint64_t) { read_loop(); }, [&] { step(1); });
  fulldeck_board_close(board);
  return 0;
}
