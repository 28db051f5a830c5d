// Reads configs from TOML, from the command line, and from the resolved config that the ranks read. Not the place that
// defines the keys: see keys.h.
//
// Strict: unknown keys (reported with the key that was probably meant), values of the wrong type or out of range, and
// contradicting settings are errors. All errors of a file are reported together, one per line of the message, each with
// file, line and column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace fulldeck::config {

// `assignments`: "train.lr=1e-3", as --set passes them; applied after the file and checked in the same way. The value
// is TOML; anything that is not valid TOML is taken as a string. `epochs=50` replaces the file's `steps` and vice
// versa; `notes` then receives a message.
base::Result<Config> ReadToml(std::string_view text, const std::string& file_name,
                              const std::vector<std::string>& assignments, std::vector<std::string>* notes = nullptr);

// The resolved form: every key, one per line, `train.lr = 0.0001`, in the order of config.h. It is valid TOML, but
// reading it needs no TOML library. A config that is written and read back is equal to the original, to the last bit of
// each number.
std::string ToResolvedText(const Config& config);
base::Result<Config> FromResolvedText(std::string_view text, const std::string& file_name);
// For files that another version of fulldeck may have written: unknown keys are ignored, missing keys get their
// defaults, and contradictions are not checked. Only for comparing configs, not for training.
base::Result<Config> FromOlderResolvedText(std::string_view text, const std::string& file_name);

// Larger files are rejected.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

}  // namespace fulldeck::config
