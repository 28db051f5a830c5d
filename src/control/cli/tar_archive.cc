#include "cli/tar_archive.h"

#include <algorithm>
#include <cstring>

namespace fulldeck::cli {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kName = 100;
constexpr std::size_t kPrefix = 155;

struct Header {
  char name[kName];
  char mode[8];
  char owner[8];
  char group[8];
  char size[12];
  char time[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char owner_name[32];
  char group_name[32];
  char device[16];
  char prefix[kPrefix];
  char padding[12];
};
static_assert(sizeof(Header) == kBlock);

void PutOctal(char* field, std::size_t size, std::uint64_t value) {
  // Zero-terminated.
  for (std::size_t i = size - 1; i > 0; --i, value /= 8) field[i - 1] = static_cast<char>('0' + value % 8);
  field[size - 1] = '\0';
}

// Puts the folders into `prefix` if the whole path is too long for `name`.
void PutName(Header& header, const std::string& name) {
  std::size_t cut = 0;
  if (name.size() > kName) {
    cut = name.rfind('/', std::min(name.size() - 1, kPrefix));
    cut = cut == std::string::npos ? 0 : cut;
  }
  if (cut > 0) std::memcpy(header.prefix, name.data(), std::min(cut, kPrefix));
  const std::string_view rest = std::string_view(name).substr(cut > 0 ? cut + 1 : 0).substr(0, kName);
  std::memcpy(header.name, rest.data(), rest.size());
}

}  // namespace

std::string TarArchive(const std::vector<ArchiveFile>& files, std::int64_t unix_seconds) {
  std::string archive;
  for (const ArchiveFile& file : files) {
    Header header{};
    PutName(header, file.name);
    PutOctal(header.mode, sizeof header.mode, 0600);
    PutOctal(header.owner, sizeof header.owner, 65534);
    PutOctal(header.group, sizeof header.group, 65534);
    PutOctal(header.size, sizeof header.size, file.text.size());
    PutOctal(header.time, sizeof header.time, static_cast<std::uint64_t>(std::max<std::int64_t>(0, unix_seconds)));
    header.type = '0';
    std::memcpy(header.magic, "ustar", 6);
    std::memcpy(header.version, "00", 2);
    // The checksum covers the header with spaces in the checksum field.
    std::memset(header.checksum, ' ', sizeof header.checksum);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sizeof header; ++i) sum += reinterpret_cast<const unsigned char*>(&header)[i];
    PutOctal(header.checksum, 7, sum);
    archive.append(reinterpret_cast<const char*>(&header), sizeof header);
    archive += file.text;
    archive.append((kBlock - file.text.size() % kBlock) % kBlock, '\0');
  }
  archive.append(2 * kBlock, '\0');
  return archive;
}

}  // namespace fulldeck::cli
