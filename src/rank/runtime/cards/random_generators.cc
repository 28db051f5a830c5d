#include "runtime/cards/random_generators.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <mutex>
#include <optional>

namespace fulldeck::runtime {
namespace {

std::optional<at::Generator> GeneratorOf(c10::Device device) {
  try {
    return at::globalContext().defaultGenerator(device);
  } catch (const std::exception&) {
    return std::nullopt;  // a stack that computes but has no random number generator
  }
}

std::vector<at::Generator> Generators(c10::Device device) {
  std::vector<at::Generator> generators = {at::globalContext().defaultGenerator(c10::kCPU)};
  if (!device.is_cpu()) {
    if (auto generator = GeneratorOf(device)) generators.push_back(*generator);
  }
  return generators;
}

}  // namespace

void SeedGenerators(c10::Device device, std::uint64_t seed) {
  for (at::Generator& generator : Generators(device)) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

std::vector<at::Tensor> GeneratorStates(c10::Device device) {
  std::vector<at::Tensor> states;
  for (at::Generator& generator : Generators(device)) {
    const std::lock_guard lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

void RestoreGenerators(c10::Device device, const std::vector<at::Tensor>& states) {
  std::vector<at::Generator> generators = Generators(device);
  for (std::size_t i = 0; i < generators.size() && i < states.size(); ++i) {
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(states[i]);
  }
}

}  // namespace fulldeck::runtime
