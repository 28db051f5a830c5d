#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "fuzz_target.h"

// A whole file: length, JSON, data. An accepted file conforms to the format, and is written again with the same
// meaning.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fulldeck::checkpoint;
  const std::string_view file = fulldeck::fuzz::AsText(data, size);
  const auto length = ParseHeaderLength(file.substr(0, 8), file.size());
  if (!length) return 0;
  FULLDECK_CHECK(*length <= kMaxHeaderBytes && *length + 8 <= file.size());
  auto header = ParseHeader(file.substr(8, static_cast<std::size_t>(*length)), file.size());
  if (!header) {
    FULLDECK_CHECK(header.error().message.find('\x1b') == std::string::npos);
    return 0;
  }
  std::uint64_t end = 0;
  for (const TensorEntry& tensor : header->tensors) {
    FULLDECK_CHECK(tensor.begin == end && TensorBytes(tensor.dtype, tensor.shape) == tensor.bytes());
    end = tensor.end;
  }
  FULLDECK_CHECK(header->data_begin + end == file.size());
  std::vector<TensorEntry> again = header->tensors;
  // The order of two empty tensors at the same offset is undefined.
  const auto written = FormatHeader(again, header->metadata);
  FULLDECK_CHECK(written.ok() && again == header->tensors);
  const auto read = ParseHeader(std::string_view(*written).substr(8), written->size() + end);
  FULLDECK_CHECK(read.ok() && read->metadata == header->metadata && read->tensors.size() == again.size());
  return 0;
}
