// Probes whether a rank's device really computes. Allocates and writes memory, computes a product and sums whose
// results are exact in any float32 arithmetic (including the reduced-precision multiplication of newer cards), and
// compares everything with the CPU. It does not measure speed.
#pragma once

#include <c10/core/Device.h>

#include <chrono>

namespace fulldeck::runtime {

// Throws an Error that names the device if it fails, returns wrong results, or does not respond in time. In the last
// case the probe's thread (`fulldeck-proof`) cannot be stopped: it is abandoned, and the process exits without waiting
// for it or for the vendor library's exit handlers.
void ProveDevice(c10::Device device, std::chrono::milliseconds timeout);

}  // namespace fulldeck::runtime
