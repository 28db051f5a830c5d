// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for proofs between launchers and for checks of content. Plain C++,
// some 150 MB/s a core: not for gigabytes in the middle of a step.
//
// Thread rule: a Sha256 belongs to one thread; the functions may be called from any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fulldeck::wire {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Takes the bytes piece by piece.
class Sha256 {
 public:
  Sha256();
  void Add(const void* bytes, std::size_t length);
  void Add(std::string_view bytes) { Add(bytes.data(), bytes.size()); }
  // The digest of everything that was added. Afterwards the object is spent.
  Sha256Digest Finish();

 private:
  void Absorb(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> pending_{};
  std::size_t pending_length_ = 0;
  std::uint64_t total_bytes_ = 0;
};

Sha256Digest Sha256Of(std::string_view bytes);

// A key of any length, also empty.
Sha256Digest HmacSha256(std::string_view key, std::string_view message);

// "e3b0c442…", 64 lower-case digits.
std::string HexOf(const Sha256Digest& digest);

// Takes the same time wherever two texts of one length differ, so that the time tells nothing about a secret.
bool EqualInConstantTime(std::string_view one, std::string_view other);

}  // namespace fulldeck::wire
