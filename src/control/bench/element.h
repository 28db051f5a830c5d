// The types of elements that the bench knows, and which whole numbers they hold exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::bench {

struct Element {
  const char* name;     // "float32", as torch says it
  int datatype;         // FULLDECK_FLOAT32 …
  std::uint32_t bytes;  // of one
  // Whole numbers from 0 up to this one are exact in it. Integers wrap round, which is exact too.
  std::uint64_t exact_to;
};

// nullptr: not known.
const Element* FindElement(std::string_view name);
std::vector<std::string> ElementNames();

// `value` as an element; integers wrap round. CHECKs value ≤ exact_to for floats.
void Encode(const Element& element, std::uint64_t value, std::byte* to);
// For messages.
double Decode(const Element& element, const std::byte* from);

}  // namespace fulldeck::bench
