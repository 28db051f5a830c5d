// Proves one NVIDIA card through the CUDA driver alone: no toolkit, no torch. Runs in a probe process only, where a
// hang or a crash costs nothing.
#pragma once

#include <string>
#include <vector>

namespace fulldeck::doctor {

struct CudaRequest {
  int card = 0;                         // position that the lines name
  std::string pci_address;              // which card; empty: by ordinal
  int ordinal = 0;                      // the driver's number, under the visible-device list
  std::vector<std::string> libraries;   // where libcuda.so.1 may be
  std::vector<std::string> management;  // where libnvidia-ml.so.1 may be: asked about memory errors
  double busy_seconds = 1.5;
  double memory_share = 0.8;  // of the free memory, to be filled with patterns
};

// Lines to descriptor 3. Returns an exit code.
int ProveCudaCard(const CudaRequest& request);

}  // namespace fulldeck::doctor
