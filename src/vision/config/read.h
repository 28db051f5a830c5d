// Recipes from TOML, from the command line, and from the resolved file that the ranks read.
//
// Strict: an unknown key is an error with the key that was probably meant, so are a value of the wrong type, one out of
// its range, and settings that contradict each other. All errors of a file are told at once, each with file, line and
// column, one a line of the message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace fulldeck::config {

// `assignments`: "train.lr=1e-3", as --set gives them, applied after the file and checked alike; the value is TOML, and
// a word that is no TOML value is taken as a string. `epochs=50` replaces the file's `steps`, and the reverse; a
// message in `notes` then says so.
base::Result<Config> ReadToml(std::string_view text, const std::string& file_name,
                              const std::vector<std::string>& assignments, std::vector<std::string>* notes = nullptr);

// The resolved form: every key, one a line, `train.lr = 0.0001`, sorted as in config.h. It is TOML too, but no TOML
// library is needed to read it, and what is read back is equal to what was written, to the last bit of a number.
std::string ToResolvedText(const Config& config);
base::Result<Config> FromResolvedText(std::string_view text, const std::string& file_name);
// What another version of fulldeck may have written: unknown keys are passed over, missing ones have their defaults,
// and nothing is checked against anything else. To compare with, not to train by.
base::Result<Config> FromOlderResolvedText(std::string_view text, const std::string& file_name);

// Larger files are refused.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

}  // namespace fulldeck::config
