#include "cli/app.h"

int main(int argc, char** argv) {
  return fulldeck::cli::CheckOutput(fulldeck::cli::Run(argc, argv));
}
