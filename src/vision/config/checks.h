// Rules about several keys of a config at once, and the defaults that depend on another key. Pure: no file is looked at
// (paths.h does that).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace fulldeck::config {

struct Contradiction {
  std::string key;      // that would have to change: "data.size"
  std::string message;  // begins with the key
};

// Everything that is wrong, in the order of the keys. Empty: nothing.
std::vector<Contradiction> Contradictions(const Config& config);

// Fills in what the kind of the data decides: names of the parts and classes. `given` says of a key whether somebody
// wrote it.
void ApplyDefaults(Config& config, const std::function<bool(std::string_view key)>& given);

// A key in which two recipes differ.
struct Change {
  std::string key, before, after;
  bool fixed = false;  // a run cannot be resumed with it
};
std::vector<Change> ChangesBetween(const Config& before, const Config& after);

}  // namespace fulldeck::config
