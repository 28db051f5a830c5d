// Does the device that a rank got really compute? Memory is taken and written, a product and sums are computed whose
// results are exact in any float32 arithmetic (also with the shortened multiplication of newer cards), and everything
// is compared with the host's.
#pragma once

#include <c10/core/Device.h>

#include <chrono>

namespace fulldeck::runtime {

// Throws an Error that names the device: it fails, answers wrongly, or does not answer in time. In the last case its
// thread (`fulldeck-proof`) cannot be stopped: it is left, and the end of the process does not wait for it or for what
// the vendor's library does at an exit.
void ProveDevice(c10::Device device, std::chrono::milliseconds timeout);

}  // namespace fulldeck::runtime
