// Which versions of packages, drivers and cards go together: a table, and the comparison of version numbers that it
// needs. Pure: what is installed is given.
//
// Names are pip's, in lower case with dashes. Beside them there are names for what is no package:
//   python          the interpreter
//   torch-cuda      the CUDA that torch was built with
//   nvidia-driver   the kernel module, by the cards' word
//   card-gcu-1      an Enflame card of the T20/T21 generation is here (any version)
//   card-gcu-2      … of the S60 generation and later
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fulldeck::doctor {

// Negative, 0, positive. As pip orders them: 2.0.0.dev1 < 2.0.0a1 < 2.0.0rc4 < 2.0.0 < 2.0.0.post1; what follows a "+"
// does not count, missing numbers are 0. Nothing when one of them is no version.
std::optional<int> CompareVersions(std::string_view left, std::string_view right);

// Whether `version` fits ">=2.0.0rc4,<2.2.0" (also ==, ==1.10.*, !=, <=, >, ~=). An empty list fits everything. Nothing
// when either cannot be understood.
std::optional<bool> VersionFits(std::string_view version, std::string_view wanted);

struct VersionPair {
  const char* package;
  const char* when;    // versions of `package` that the row is about
  const char* other;   // what must fit, where it is installed
  const char* wanted;  // "=" for the same first two numbers as `package`
  const char* row;     // of the catalogue of failures
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

// What the table says about `installed`. A pair of which one is not installed is not compared.
Comparison ComparePairs(const Installed& installed);

// What a package itself asks for ("torch (>=1.10)", "numpy<3.0.0,>=1.17"), as its metadata has it. Requirements with a
// condition or an extra are left out.
Comparison CompareRequirements(const std::string& package, const std::vector<std::string>& requirements,
                               const Installed& installed);

}  // namespace fulldeck::doctor
