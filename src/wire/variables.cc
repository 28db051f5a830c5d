#include "wire/variables.h"

namespace fulldeck::wire {

std::span<const VariableRow> Variables() {
  static constexpr VariableRow kRows[] = {
      {kSimulateVariable,
       "Stands in for a server: this many simulated cards of this kind, instead of the real ones. Forms: fulldeck "
       "devices "
       "--help.",
       "gcu:8,memory=32GiB,idle=3"},
      {kSimulateDirVariable,
       "Folder that holds what simulated cards share between processes. Default: $XDG_RUNTIME_DIR/fulldeck, else "
       "/tmp/fulldeck-UID.",
       "/tmp/my-simulated-server"},
      {kNoColorVariable, "Set and not empty: no colour, also on a terminal.", "1"},
  };
  return kRows;
}

}  // namespace fulldeck::wire
