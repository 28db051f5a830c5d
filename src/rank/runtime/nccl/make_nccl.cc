// lib/libfulldeck_nccl.so: makes torch's own NCCL backend. A library of its own, loaded when a session wants NCCL,
// because it alone needs CUDA's headers to be built and torch's CUDA libraries to be loaded.
#define USE_C10D_NCCL

#include "runtime/cards/nccl_library.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" __attribute__((visibility("default"))) void fulldeck_make_nccl(const fulldeck::runtime::NcclRequest& request,
                                                                          c10::intrusive_ptr<c10d::Backend>& made) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  made = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size, options);
  // The communicator now, and not in the first step: what cannot work is told while the ranks still meet.
  made->setBoundDeviceId(request.device);
  made->eagerConnectSingleDevice(request.device);
}
