// Random numbers of the cards: each card has its own generator, from which the CPU kernels draw.
#pragma once

#include <ATen/core/Generator.h>

namespace fulldeck::simulator {

// The card's own generator. Never destroyed.
const at::Generator& DefaultGenerator(int card);
at::Generator NewGenerator(int card);

// The generator that a CPU kernel draws from: that of the given generator of `card`, or of the card's default one if
// none is given. Throws if the generator belongs to another device.
at::Generator HostGenerator(const std::optional<at::Generator>& generator, int card);

}  // namespace fulldeck::simulator
