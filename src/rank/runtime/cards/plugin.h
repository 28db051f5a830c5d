// Libraries that add another vendor's device to torch. They are loaded with symbols visible to each other and never
// unloaded.
//
// A library that has to initialize or to refuse after it is loaded exports
//   int fulldeck_torch_plugin_init(void)              0, or another value if it cannot be used here
//   const char* fulldeck_torch_plugin_error(void)     why
// Vendors' own libraries, which register themselves while they are loaded, export neither.
#pragma once

#include <string>
#include <vector>

namespace fulldeck::runtime {

// Throws an Error that names the library. Loading it again has no effect.
void LoadTorchPlugin(const std::string& path);

// Finds a library that was built with this one: in the same folder, or in lib/ next to it. Empty: in neither.
std::string LibraryBeside(const std::string& name);

// The library of simulated cards; if it is missing, the path where it should be.
std::string SimulatedCardsPlugin();

// Loads an optional library of torch from the folder of libtorch_cpu ("libtorch_cuda.so"). False: it does not exist or
// cannot be loaded; `reason` says why.
bool LoadLibraryOfTorch(const char* name, std::string* reason);

}  // namespace fulldeck::runtime
