#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/scalar_state.h"
#include "fuzz_target.h"

// A manifest without its checksum, which is appended here because a fuzzer cannot guess one. The same bytes are also
// read as a state.json.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::checkpoint;
  const std::string body(fulldeck::fuzz::AsText(data, size));
  const auto manifest = ParseManifest(body + ",\n\"manifest_hash\":\"" +
                                      fulldeck::base::FormatHash(fulldeck::base::HashOf(body)) + "\"}\n");
  if (manifest) {
    FULLDECK_CHECK(manifest->world_size >= 1 && manifest->step <= kMaxStep);
    for (const FileSum& file : manifest->files)
      FULLDECK_CHECK(IsFileName(file.name) && file.name.find('/') == std::string::npos);
    const auto again = ParseManifest(FormatManifest(*manifest));
    FULLDECK_CHECK(again.ok() && *again == *manifest);
  } else {
    FULLDECK_CHECK(manifest.error().message.find('\x1b') == std::string::npos);
  }
  if (const auto scalars = ParseScalars(body)) {
    const auto text = FormatScalars(*scalars);
    FULLDECK_CHECK(text.ok());
    const auto again = ParseScalars(*text);
    FULLDECK_CHECK(again.ok() && again->size() == scalars->size());
  }
  return 0;
}
