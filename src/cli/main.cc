#include "cli/app.h"

int main(int argc, char** argv) {
  return fulldeck::cli::Run(argc, argv);
}
