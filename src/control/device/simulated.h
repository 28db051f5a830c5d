// Simulated cards as a vendor like any other. Labeled "simulated" wherever they are shown.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/environment.h"
#include "device/vendor.h"
#include "wire/simulated_spec.h"

namespace fulldeck::device {

// Reads what the processes that use the cards wrote to the shared state.
std::unique_ptr<Vendor> MakeSimulated(wire::SimulatedSpec spec, const base::Environment& environment,
                                      const base::Clock& clock = base::SteadyClock::Instance());

}  // namespace fulldeck::device
