#include "wire/bytes_header.h"

#include "base/check.h"

namespace fulldeck::wire {

BytesHeader MakeHeader(std::string_view magic, std::uint32_t version, std::uint32_t length) {
  BytesHeader header{};
  FULLDECK_CHECK(magic.size() == sizeof header.magic);
  std::memcpy(header.magic, magic.data(), sizeof header.magic);
  header.version = version;
  header.length = length;
  return header;
}

base::Result<void> CheckHeader(const BytesHeader& header, std::string_view magic, std::uint32_t version,
                               std::uint32_t limit, std::string_view what) {
  const std::string subject(what);
  if (std::string_view(header.magic, sizeof header.magic) != magic) {
    return base::Error{subject + " does not start with " + std::string(magic) + ": it was written by something else"};
  }
  if (header.version != version) {
    return base::Error{subject + " has version " + std::to_string(header.version) + ", this fulldeck speaks version " +
                       std::to_string(version) + ": use the same fulldeck on both sides"};
  }
  if (header.length > limit) {
    return base::Error{subject + " says that " + std::to_string(header.length) + " bytes follow, more than the " +
                       std::to_string(limit) + " that can be right"};
  }
  return {};
}

}  // namespace fulldeck::wire
