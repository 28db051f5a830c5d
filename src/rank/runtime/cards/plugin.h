// Libraries that teach torch another vendor's device. Loaded into the process, with their symbols visible to each
// other; never unloaded.
//
// A library that has work to do or to refuse after it is loaded shows
//   int fulldeck_torch_plugin_init(void)              0, or anything else where it cannot work here
//   const char* fulldeck_torch_plugin_error(void)     why
// Vendors' own libraries, which register themselves while they are loaded, need neither.
#pragma once

#include <string>
#include <vector>

namespace fulldeck::runtime {

// Throws an Error that names the library. Loading one again does nothing.
void LoadTorchPlugin(const std::string& path);

// A library that was built with this one: it lies in the same folder, or in lib/ beside it. Empty: it is in neither.
std::string LibraryBeside(const std::string& name);

// The library of simulated cards; where it is missing, the place where it should be.
std::string SimulatedCardsPlugin();

// A library of torch's own that stands beside libtorch_cpu and may or may not be there ("libtorch_cuda.so"). False: it
// is not there, or cannot be loaded; `reason` says why.
bool LoadLibraryOfTorch(const char* name, std::string* reason);

}  // namespace fulldeck::runtime
