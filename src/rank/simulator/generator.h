// Random numbers of the cards: each card has a generator of its own, which the host's kernels draw from.
#pragma once

#include <ATen/core/Generator.h>

namespace fulldeck::simulator {

// The card's own. Lives as long as the process.
const at::Generator& DefaultGenerator(int card);
at::Generator NewGenerator(int card);

// What a kernel of the host is to draw from: of a generator of `card` its own numbers, of none those of the card's
// default. Throws when the generator is another device's.
at::Generator HostGenerator(const std::optional<at::Generator>& generator, int card);

}  // namespace fulldeck::simulator
