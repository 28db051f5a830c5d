// HTML fragments from untrusted text. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace fulldeck::report {

// For text between tags and in quoted attributes: unprintable characters become '?', and nothing in it is markup.
std::string Escaped(std::string_view text);

// "data:image/png;base64,…", for the src of an image.
std::string PngDataUri(std::string_view png);

}  // namespace fulldeck::report
