/* A rank of a training run, without the training: it uses the card of its LOCAL_RANK, keeps it busy, and reports its
 * progress on the rank board. Plain C with the two public headers; `make train` runs eight of them.
 *
 *   FULLDECK_SIMULATE=gcu:8 fulldeck run --no-python build/examples/simulated_rank 50 100
 *
 * Arguments: steps, milliseconds per step. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fulldeck/rank_board.h"
#include "fulldeck/simulated_card.h"

enum { kBatch = 2, kCardBytes = 1 << 20 };

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: simulated_rank STEPS MILLISECONDS\n");
    return 2;
  }
  const uint64_t steps = strtoull(argv[1], NULL, 10);
  const useconds_t busy = (useconds_t)strtoul(argv[2], NULL, 10) * 1000;
  const char* local_rank = getenv("LOCAL_RANK");
  if (local_rank == NULL) {
    fprintf(stderr, "LOCAL_RANK is not set: start this with fulldeck run\n");
    return 1;
  }

  fulldeck_simulated_card* card = NULL;
  if (fulldeck_simulated_card_open((int)strtol(local_rank, NULL, 10), &card) != 0) {
    fprintf(stderr, "%s\n", fulldeck_simulated_card_error());
    return 1;
  }
  if (fulldeck_simulated_card_hold(card, kCardBytes) != 0) {
    fprintf(stderr, "the card has no room for %d bytes\n", kCardBytes);
    return 1;
  }
  fulldeck_board* board = NULL; /* NULL is allowed: the progress is then not visible */
  if (fulldeck_board_open(&board) != 0) fprintf(stderr, "%s\n", fulldeck_board_error());

  double loss = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    const uint64_t begun = fulldeck_simulated_card_begin(card);
    usleep(busy);
    fulldeck_simulated_card_end(card, begun);
    loss = 2.3 / sqrt((double)step);
    const fulldeck_board_figures figures = {.struct_bytes = sizeof figures,
                                            .has_loss = 1,
                                            .step = step,
                                            .total_steps = steps,
                                            .loss = loss,
                                            .samples = step * kBatch};
    fulldeck_board_step(board, &figures);
  }
  printf("%llu steps done, loss %.3f\n", (unsigned long long)steps, loss);
  fulldeck_board_close(board);
  fulldeck_simulated_card_close(card);
  return 0;
}
