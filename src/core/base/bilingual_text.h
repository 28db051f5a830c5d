// One sentence in both languages of the program.
#pragma once

#include <string>

namespace fulldeck::base {

struct BilingualText {
  std::string english;
  std::string chinese;
};

}  // namespace fulldeck::base
