// The element types that the bench knows, and which integers they represent exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::bench {

struct Element {
  const char* name;     // "float32", torch's name
  int datatype;         // FULLDECK_FLOAT32 …
  std::uint32_t bytes;  // size of one element
  // Integers from 0 to this one are exact. Integer types wrap around, which is exact too.
  std::uint64_t exact_to;
};

// nullptr if unknown.
const Element* FindElement(std::string_view name);
std::vector<std::string> ElementNames();

// Writes `value` as an element; integer types wrap around. CHECKs value ≤ exact_to for floats.
void Encode(const Element& element, std::uint64_t value, std::byte* to);
// For messages.
double Decode(const Element& element, const std::byte* from);

}  // namespace fulldeck::bench
