// Do two ranks compute on the same card?
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fulldeck::runtime {

// What one rank says of its card to the others.
struct CardClaim {
  std::string node;     // equal: the same machine and network namespace
  std::string device;   // "gcu:3"; empty: it computes on processors
  std::string serial;   // empty: not known
  std::string visible;  // the visible-device lists that its numbers count in

  std::string ToText() const;
  static CardClaim FromText(const std::string& text);
};

std::string ThisNodeKey();
// The values of all vendors' visible-device variables.
std::string VisibleLists();

// Pure. The first two ranks that have one card; {-1, -1}: none have. Cards with known serials are compared by these,
// others by node, visible list and device.
std::pair<int, int> FindSharedCard(const std::vector<CardClaim>& claims);

}  // namespace fulldeck::runtime
