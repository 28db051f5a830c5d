#include "doctor/machine/machine_checks.h"

namespace fulldeck::doctor {

std::vector<Check> MachineChecks() {
  return {
      {"cores", Group::kMachine, CheckCores},
      {"memory", Group::kMachine, CheckMemory},
      {"loader-workers", Group::kMachine, CheckLoaderWorkers},
      {"open-files", Group::kMachine, CheckOpenFiles},
      {"processes", Group::kMachine, CheckProcesses},
      {"locked-memory", Group::kMachine, CheckLockedMemory},
      {"core-files", Group::kMachine, CheckCoreFiles},
      {"shm", Group::kMachine, CheckShm},
      {"clock", Group::kMachine, CheckClock},
      {"huge-pages", Group::kMachine, CheckHugePages},
      {"left-runs", Group::kMachine, CheckLeftRuns},
      {"left-files", Group::kMachine, CheckLeftFiles},
      {"card-holders", Group::kMachine, CheckCardHolders},
  };
}

}  // namespace fulldeck::doctor
