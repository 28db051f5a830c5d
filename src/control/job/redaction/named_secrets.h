// Secrets in text that follow their names, in all the forms in which programs print them, and words that look like
// keys themselves. Constant time per word, because a line may have hundreds of thousands. Pure.
#pragma once

#include <string>
#include <string_view>

namespace fulldeck::job {

std::string WithoutNamedOrRandom(std::string_view text);

// Secrets after the names of kChineseNames (job/redaction/secret_names.h), which are not ASCII words.
std::string WithoutNamedInChinese(std::string_view text);

}  // namespace fulldeck::job
