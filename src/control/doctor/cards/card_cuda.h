// Probes one NVIDIA card through the CUDA driver only: no toolkit, no torch. Runs only in a probe process, where a hang
// or a crash is harmless.
#pragma once

#include <string>
#include <vector>

namespace fulldeck::doctor {

struct CudaRequest {
  int card = 0;                         // index used in the output lines
  std::string pci_address;              // empty: use `ordinal`
  int ordinal = 0;                      // the driver's number, under the visible-device list
  std::vector<std::string> libraries;   // candidate paths of libcuda.so.1
  std::vector<std::string> management;  // candidate paths of libnvidia-ml.so.1, for memory errors
  double busy_seconds = 1.5;
  double memory_share = 0.8;  // fraction of the free memory to fill with patterns
};

// Writes lines to descriptor 3. Returns an exit code.
int ProveCudaCard(const CudaRequest& request);

}  // namespace fulldeck::doctor
