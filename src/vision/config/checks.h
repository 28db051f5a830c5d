// Rules that involve several keys of a config, and the defaults that depend on another key. Pure: does not read the
// file system (paths.h does).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace fulldeck::config {

struct Contradiction {
  std::string key;      // the key to change: "data.size"
  std::string message;  // starts with the key
};

// All contradictions, in the order of the keys; empty if there are none.
std::vector<Contradiction> Contradictions(const Config& config);

// Fills in what the kind of data determines: the names of splits and classes. `given` returns whether the user set a
// key.
void ApplyDefaults(Config& config, const std::function<bool(std::string_view key)>& given);

// A key in which two configs differ.
struct Change {
  std::string key, before, after;
  bool fixed = false;  // a run cannot be resumed if this key has changed
};
std::vector<Change> ChangesBetween(const Config& before, const Config& after);

}  // namespace fulldeck::config
