// lib/libfulldeck_nccl.so: creates torch's own NCCL backend. It is a separate library, loaded when a session wants
// NCCL, because only this code needs CUDA's headers to build and torch's CUDA libraries to load.
#define USE_C10D_NCCL

#include "runtime/cards/nccl_library.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" __attribute__((visibility("default"))) void fulldeck_make_nccl(const fulldeck::runtime::NcclRequest& request,
                                                                          c10::intrusive_ptr<c10d::Backend>& made) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  made = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size, options);
  // Creates the communicator now instead of in the first step, so that errors appear during the rendezvous.
  made->setBoundDeviceId(request.device);
  made->eagerConnectSingleDevice(request.device);
}
