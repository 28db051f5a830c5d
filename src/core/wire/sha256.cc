#include "wire/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fulldeck::wire {
namespace {

constexpr std::size_t kBlockSize = 64;

constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t BigEndian(const std::uint8_t* bytes) {
  return (std::uint32_t{bytes[0]} << 24) | (std::uint32_t{bytes[1]} << 16) | (std::uint32_t{bytes[2]} << 8) |
         std::uint32_t{bytes[3]};
}

std::string_view AsText(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::Absorb(const std::uint8_t* block) {
  std::array<std::uint32_t, 64> schedule;
  for (std::size_t i = 0; i < 16; ++i) schedule[i] = BigEndian(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t early = schedule[i - 15];
    const std::uint32_t late = schedule[i - 2];
    const std::uint32_t sigma0 = std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3);
    const std::uint32_t sigma1 = std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10);
    schedule[i] = schedule[i - 16] + sigma0 + schedule[i - 7] + sigma1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t first = h + sum1 + choice + kRoundConstants[i] + schedule[i];
    const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + sum0 + majority;
  }
  const std::array<std::uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < mixed.size(); ++i) state_[i] += mixed[i];
}

void Sha256::Add(const void* bytes, std::size_t length) {
  if (length == 0) return;
  const auto* position = static_cast<const std::uint8_t*>(bytes);
  total_bytes_ += length;
  if (pending_length_ > 0) {
    const std::size_t taken = std::min(length, kBlockSize - pending_length_);
    std::memcpy(pending_.data() + pending_length_, position, taken);
    pending_length_ += taken;
    position += taken;
    length -= taken;
    if (pending_length_ < kBlockSize) return;
    Absorb(pending_.data());
    pending_length_ = 0;
  }
  for (; length >= kBlockSize; position += kBlockSize, length -= kBlockSize) Absorb(position);
  if (length > 0) std::memcpy(pending_.data(), position, length);
  pending_length_ = length;
}

Sha256Digest Sha256::Finish() {
  const std::uint64_t bits = total_bytes_ * 8;
  std::array<std::uint8_t, kBlockSize + 8> padding{0x80};
  const std::size_t zeros_until = pending_length_ < 56 ? 56 - pending_length_ : 120 - pending_length_;
  for (std::size_t i = 0; i < 8; ++i) padding[zeros_until + i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
  Add(padding.data(), zeros_until + 8);
  Sha256Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Sha256Digest Sha256Of(std::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

Sha256Digest HmacSha256(std::string_view key, std::string_view message) {
  std::array<std::uint8_t, kBlockSize> inner_key{};
  if (key.size() > kBlockSize) {
    const Sha256Digest shorter = Sha256Of(key);
    std::copy(shorter.begin(), shorter.end(), inner_key.begin());
  } else {
    std::copy(key.begin(), key.end(), inner_key.begin());
  }
  std::array<std::uint8_t, kBlockSize> outer_key = inner_key;
  for (std::uint8_t& byte : inner_key) byte ^= 0x36;
  for (std::uint8_t& byte : outer_key) byte ^= 0x5c;
  Sha256 inner;
  inner.Add(inner_key.data(), inner_key.size());
  inner.Add(message);
  const Sha256Digest inner_digest = inner.Finish();
  Sha256 outer;
  outer.Add(outer_key.data(), outer_key.size());
  outer.Add(AsText(inner_digest));
  return outer.Finish();
}

std::string HexOf(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool EqualInConstantTime(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  // Volatile, so that the compiler does not exit the loop early.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    difference = static_cast<unsigned char>(
        difference | (static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i])));
  }
  return difference == 0;
}

}  // namespace fulldeck::wire
