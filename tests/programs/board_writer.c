/* board_writer STEPS MILLISECONDS_PER_STEP [ENDING]: a rank that only pretends to train. It reports STEPS steps on the
 * rank board, one per MILLISECONDS_PER_STEP, each with an all_reduce, a heartbeat and the usual metrics, and prints
 * "step N". STEPS 0: until it is killed.
 *
 * ENDING: ok (default) exits with code 0; fail reports an error and exits with code 3; hang starts one more all_reduce
 * and stays in it; abort ends with SIGABRT.
 *
 * Without a board it prints the reason on standard error and runs its steps anyway. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fulldeck/rank_board.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    fputs("usage: board_writer STEPS MILLISECONDS_PER_STEP [ok|fail|hang|abort]\n", stderr);
    return 2;
  }
  const uint64_t steps = strtoull(argv[1], NULL, 10);
  const useconds_t step_us = (useconds_t)strtoul(argv[2], NULL, 10) * 1000;
  const char* ending = argc > 3 ? argv[3] : "ok";

  fulldeck_board* board = NULL;
  if (fulldeck_board_open(&board) != 0) fprintf(stderr, "board_writer: %s\n", fulldeck_board_error());
  fulldeck_board_identity(board, FULLDECK_BOARD_RUNTIME, "board_writer");
  fulldeck_board_phase(board, FULLDECK_BOARD_INIT);
  const char* rank_text = getenv("RANK");
  const char* size_text = getenv("WORLD_SIZE");
  const uint32_t rank = rank_text != NULL ? (uint32_t)strtoul(rank_text, NULL, 10) : 0;
  const uint32_t size = size_text != NULL ? (uint32_t)strtoul(size_text, NULL, 10) : 1;
  const int group = fulldeck_board_group_join(board, 1, "world", size, rank);

  const fulldeck_board_collective all_reduce = {.struct_bytes = sizeof all_reduce,
                                                .operation = FULLDECK_BOARD_ALL_REDUCE,
                                                .datatype = FULLDECK_BOARD_FLOAT32,
                                                .root = -1,
                                                .count = 1 << 20,
                                                .bytes = 4 << 20};
  for (uint64_t step = 1; steps == 0 || step <= steps; ++step) {
    fulldeck_board_phase(board, FULLDECK_BOARD_COMPUTE);
    usleep(step_us);
    fulldeck_board_phase(board, FULLDECK_BOARD_COMMUNICATION);
    fulldeck_board_collective_end(board, group, fulldeck_board_collective_begin(board, group, &all_reduce));
    fulldeck_board_heartbeat(board);
    fulldeck_board_memory(board, (uint64_t)1 << 30, (uint64_t)3 << 29);
    const fulldeck_board_figures figures = {.struct_bytes = sizeof figures,
                                            .has_loss = 1,
                                            .step = step,
                                            .total_steps = steps,
                                            .epoch = step / 100,
                                            .loss = 1.0 / (double)step,
                                            .samples = step * 32,
                                            .compute_ns = step * step_us * 1000,
                                            .batch_fingerprint = step * 1000003u + rank + 1,
                                            .parameters_fingerprint = step * 7919u};
    fulldeck_board_step(board, &figures);
    printf("step %llu\n", (unsigned long long)step);
    fflush(stdout);
  }
  if (strcmp(ending, "fail") == 0) {
    fulldeck_board_set_error(board, "the data ran out");
    return 3;
  }
  if (strcmp(ending, "abort") == 0) abort();
  if (strcmp(ending, "hang") == 0) {
    fulldeck_board_collective_begin(board, group, &all_reduce);
    for (;;) pause();
  }
  fulldeck_board_phase(board, FULLDECK_BOARD_FINISHED);
  fulldeck_board_close(board);
  return 0;
}
