// Detects two ranks that compute on the same card.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fulldeck::runtime {

// What one rank publishes about its card.
struct CardClaim {
  std::string node;     // equal on the same machine and network namespace
  std::string device;   // "gcu:3"; empty: it computes on the CPU
  std::string serial;   // empty: unknown
  std::string visible;  // the visible-device lists that its index refers to

  std::string ToText() const;
  static CardClaim FromText(const std::string& text);
};

std::string ThisNodeKey();
// The values of all vendors' visible-device variables.
std::string VisibleLists();

// Pure. The first two ranks on the same card; {-1, -1}: none. Cards with known serials are compared by serial, others
// by node, visible lists and device.
std::pair<int, int> FindSharedCard(const std::vector<CardClaim>& claims);

}  // namespace fulldeck::runtime
