// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for authentication between launchers and for checksums of content.
// Plain C++, about 150 MB/s per core: not for gigabytes during a step.
//
// Thread rule: a Sha256 belongs to one thread; the functions are thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fulldeck::wire {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Incremental hashing.
class Sha256 {
 public:
  Sha256();
  void Add(const void* bytes, std::size_t length);
  void Add(std::string_view bytes) { Add(bytes.data(), bytes.size()); }
  // The digest of everything added. The object must not be used afterwards.
  Sha256Digest Finish();

 private:
  void Absorb(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> pending_{};
  std::size_t pending_length_ = 0;
  std::uint64_t total_bytes_ = 0;
};

Sha256Digest Sha256Of(std::string_view bytes);

// A key of any length, including empty.
Sha256Digest HmacSha256(std::string_view key, std::string_view message);

// "e3b0c442…", 64 lower-case digits.
std::string HexOf(const Sha256Digest& digest);

// Takes the same time regardless of where two strings of equal length differ, so that the timing leaks nothing about a
// secret.
bool EqualInConstantTime(std::string_view one, std::string_view other);

}  // namespace fulldeck::wire
