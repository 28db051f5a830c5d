#include "doctor/machine/container_checks.h"

namespace fulldeck::doctor {

std::vector<Check> ContainerChecks() {
  return {
      {"container-init", Group::kContainer, CheckContainerInit},
      {"device-nodes", Group::kContainer, CheckDeviceNodes},
      {"vendor-libraries", Group::kContainer, CheckVendorLibraries},
      {"vendor-tool", Group::kContainer, CheckVendorTool},
      {"shm-size", Group::kContainer, CheckShmSize},
      {"system-calls", Group::kContainer, CheckFacilities},
      {"capabilities", Group::kContainer, CheckCapabilities},
  };
}

}  // namespace fulldeck::doctor
