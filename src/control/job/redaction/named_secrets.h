// Secrets of a running text that stand behind their names, in all the shapes in which programs print them, and those
// that look like keys themselves. Constant time per word: a line may have hundreds of thousands. Pure.
#pragma once

#include <string>
#include <string_view>

namespace fulldeck::job {

std::string WithoutNamedOrRandom(std::string_view text);

// Behind the names of kChineseNames (job/redaction/secret_names.h), which are no ASCII words.
std::string WithoutNamedInChinese(std::string_view text);

}  // namespace fulldeck::job
