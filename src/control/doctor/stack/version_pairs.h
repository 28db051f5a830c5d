// Which versions of packages, drivers and cards are compatible: a table, and the comparison of version numbers for it.
// Pure: the caller provides what is installed.
//
// Names are pip's, in lower case with dashes. Additional names for what is not a package:
//   python          the interpreter
//   torch-cuda      the CUDA that torch was built with
//   nvidia-driver   the kernel module, as reported by the cards
//   card-gcu-1      an Enflame card of the T20/T21 generation is present (any version)
//   card-gcu-2      … of the S60 generation and later
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::doctor {

// Negative, 0 or positive, in pip's order: 2.0.0.dev1 < 2.0.0a1 < 2.0.0rc4 < 2.0.0 < 2.0.0.post1. A suffix after "+" is
// ignored; missing numbers are 0. nullopt if one of them is not a version.
std::optional<int> CompareVersions(std::string_view left, std::string_view right);

// Whether `version` matches ">=2.0.0rc4,<2.2.0" (also ==, ==1.10.*, !=, <=, >, ~=). An empty list matches everything.
// nullopt if either cannot be parsed.
std::optional<bool> VersionFits(std::string_view version, std::string_view wanted);

struct VersionPair {
  const char* package;
  const char* when;    // versions of `package` that the row applies to
  const char* other;   // the package to check, if it is installed
  const char* wanted;  // "=": the same first two numbers as `package`
  const char* row;     // failure code
};

std::span<const VersionPair> VersionPairs();

using Installed = std::map<std::string, std::string>;  // name to version

struct Mismatch {
  std::string package, version, other, other_version, wanted, row;
};

struct Comparison {
  int compared = 0;
  std::vector<Mismatch> mismatches;
};

// Applies the table to `installed`. A pair is skipped if one of the two is not installed.
Comparison ComparePairs(const Installed& installed);

// Applies a package's own requirements ("torch (>=1.10)", "numpy<3.0.0,>=1.17"), as in its metadata. Requirements with
// a condition or an extra are skipped.
Comparison CompareRequirements(const std::string& package, const std::vector<std::string>& requirements,
                               const Installed& installed);

}  // namespace fulldeck::doctor
