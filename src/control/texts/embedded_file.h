// A file of the folder data/ as the program carries it: cmake/embed_texts.cmake.
#pragma once

#include <string_view>

namespace fulldeck::texts {

struct EmbeddedFile {
  std::string_view path;  // in the source tree: "data/failures/C5.toml"
  std::string_view text;
};

}  // namespace fulldeck::texts
