// CRC-32C (Castagnoli), and its masked form in TFRecord files. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace fulldeck::report {

std::uint32_t Crc32c(std::string_view bytes);
std::uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace fulldeck::report
