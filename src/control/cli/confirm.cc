#include "cli/confirm.h"

#include <array>
#include <cstdio>

#include "base/text.h"

namespace fulldeck::cli {

bool Confirm(const std::string& question) {
  std::fprintf(stderr, "%s [y/N] ", question.c_str());
  std::fflush(stderr);
  std::array<char, 64> line{};
  if (std::fgets(line.data(), line.size(), stdin) == nullptr) return false;
  const std::string_view answer = base::Trim(line.data());
  return answer == "y" || answer == "Y" || answer == "yes" || answer == "Yes";
}

}  // namespace fulldeck::cli
