/* use_simulated_card CARD BYTES: allocates memory on a simulated card and keeps it busy until it is killed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fulldeck/simulated_card.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  fulldeck_simulated_card* card = NULL;
  if (fulldeck_simulated_card_open((int)strtol(argv[1], NULL, 10), &card) != 0) {
    fprintf(stderr, "%s\n", fulldeck_simulated_card_error());
    return 1;
  }
  if (fulldeck_simulated_card_hold(card, strtoull(argv[2], NULL, 10)) != 0) return 3;
  puts("busy");
  fflush(stdout);
  for (;;) {
    const uint64_t begun = fulldeck_simulated_card_begin(card);
    usleep(9000);
    fulldeck_simulated_card_end(card, begun);
    usleep(1000);
  }
}
