#include "fulldeck/replica_check.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "training/replica_check_words.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FULLDECK_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define FULLDECK_WIDE
#endif

namespace fulldeck {
namespace {

// Sixteen lanes of 64 bits. Taking in a word (xor, rotate, times 513, xor) can be undone, so that two inputs that
// differ in one word, or in several of one lane that do not conspire, never come to the same lane; the order of words
// counts. Only shifts and sums: compilers make it wide on every processor.
constexpr std::size_t kLanes = 16;
constexpr std::size_t kStripe = kLanes * sizeof(std::uint64_t);
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
constexpr std::uint64_t kOther = 0xc2b2ae3d27d4eb4fU;
constexpr std::size_t kPiece = 4 << 20;  // of a card's tensor, on its way through the host

using Lanes = std::array<std::uint64_t, kLanes>;

std::uint64_t Stirred(std::uint64_t value) {
  value ^= value >> 29;
  value *= 0xbf58476d1ce4e5b9U;
  value ^= value >> 32;
  value *= 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

FULLDECK_WIDE void AddStripes(std::uint64_t* lanes, const unsigned char* bytes, std::size_t stripes) {
  using Four = std::uint64_t __attribute__((vector_size(32)));
  constexpr std::size_t kFours = kStripe / sizeof(Four);
  Four sums[kFours];
  std::memcpy(sums, lanes, sizeof sums);
  for (std::size_t stripe = 0; stripe < stripes; ++stripe, bytes += kStripe) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kFours; ++i) {
      Four words;
      std::memcpy(&words, bytes + i * sizeof words, sizeof words);
      const Four mixed = sums[i] ^ words;
      const Four turned = (mixed << 27) | (mixed >> 37);
      const Four spread = turned + (turned << 9);
      sums[i] = spread ^ (spread >> 29);
    }
  }
  std::memcpy(lanes, sums, sizeof sums);
}

at::Tensor BytesOf(const at::Tensor& tensor) {
  // What counts are the values, in their order.
  return tensor.detach().contiguous().reshape({-1}).view(at::kByte);
}

std::uint64_t HashOfPart(const at::Tensor& bytes, std::int64_t begin, std::int64_t end, std::uint64_t seed) {
  if (bytes.device().is_cpu())
    return HashOfBytes(bytes.const_data_ptr<std::uint8_t>() + begin, static_cast<std::size_t>(end - begin), seed);
  for (std::int64_t at = begin; at < end; at += kPiece) {
    const at::Tensor piece = bytes.slice(0, at, std::min<std::int64_t>(end, at + kPiece)).cpu();
    seed = HashOfBytes(piece.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(piece.numel()), seed);
  }
  return seed;
}

// One row of words of every rank.
std::vector<std::vector<std::int64_t>> GatherWords(const Team& team, const std::vector<std::int64_t>& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  at::Tensor words = at::empty({length}, at::kLong);
  std::copy(mine.begin(), mine.end(), words.data_ptr<std::int64_t>());
  const at::Tensor all = training::RowsOfRanks(team, words.to(team.device)).cpu();
  std::vector<std::vector<std::int64_t>> rows;
  const auto* word = all.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < team.world_size; ++rank, word += length) rows.emplace_back(word, word + length);
  return rows;
}

}  // namespace

namespace training {

at::Tensor RowsOfRanks(const Team& team, const at::Tensor& mine) {
  const at::Tensor all = at::empty({team.world_size, mine.numel()}, mine.options());
  std::vector<std::vector<at::Tensor>> rows = {all.unbind(0)};
  std::vector<at::Tensor> given = {mine};
  team.group->allgather(rows, given)->wait();
  return all;
}

}  // namespace training

std::uint64_t HashOfBytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  Lanes lanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = Stirred(seed + (lane + 1) * kOther);
  const auto* const from = static_cast<const unsigned char*>(data);
  const std::size_t stripes = bytes / kStripe;
  AddStripes(lanes.data(), from, stripes);
  if (const std::size_t left = bytes - stripes * kStripe; left > 0) {
    std::array<unsigned char, kStripe> last{};
    std::memcpy(last.data(), from + stripes * kStripe, left);
    AddStripes(lanes.data(), last.data(), 1);
  }
  std::uint64_t hash = Stirred(seed ^ bytes);
  for (const std::uint64_t lane : lanes) hash = Stirred(hash + lane) * kOdd;
  return Stirred(hash);
}

std::uint64_t HashOfTensor(const at::Tensor& tensor, std::uint64_t seed) {
  const at::Tensor bytes = BytesOf(tensor);
  // By pieces on the host too: the same hash wherever the tensor lies.
  const std::int64_t end = bytes.numel();
  for (std::int64_t at = 0; at < end; at += kPiece) {
    seed = HashOfPart(bytes, at, std::min<std::int64_t>(end, at + kPiece), seed);
  }
  return Stirred(seed + static_cast<std::uint64_t>(end));
}

std::string CompareOverRanks(const Team& team, const std::vector<NamedTensor>& tensors) {
  std::vector<std::int64_t> mine;
  for (const NamedTensor& named : tensors) mine.push_back(static_cast<std::int64_t>(HashOfTensor(named.tensor)));
  if (mine.empty()) return {};
  std::vector<std::string> names;
  for (const NamedTensor& named : tensors) names.push_back(named.name);
  return training::DescribeDifference(GatherWords(team, mine), names);
}

ReplicaCheck::ReplicaCheck(Team team, int every) : team_(std::move(team)), every_(static_cast<std::uint64_t>(every)) {
  if (every < 1) throw Error("a replica check every " + std::to_string(every) + " steps is impossible; at least 1.");
}

void ReplicaCheck::Step(const std::vector<NamedTensor>& tensors, std::uint64_t step) {
  std::uint64_t total = 0;
  for (const NamedTensor& named : tensors) total += named.tensor.nbytes();
  const auto border = [&](std::uint64_t part) {
    return part == every_ ? total : total / every_ * part / kStripe * kStripe;
  };
  const std::uint64_t begin = border(part_);
  const std::uint64_t end = border(part_ + 1);
  std::uint64_t at = 0;
  for (const NamedTensor& named : tensors) {
    const std::uint64_t length = named.tensor.nbytes();
    const std::uint64_t from = std::max(begin, at);
    const std::uint64_t to = std::min(end, at + length);
    if (from < to) {
      hash_ = HashOfPart(BytesOf(named.tensor), static_cast<std::int64_t>(from - at),
                         static_cast<std::int64_t>(to - at), hash_);
    }
    at += length;
    if (at >= end) break;
  }
  if (++part_ < every_) return;

  part_ = 0;
  const std::uint64_t mine = std::exchange(hash_, 0);
  fingerprint_ = mine == 0 ? 1 : mine;
  bool same = true;
  for (const auto& row : GatherWords(team_, {static_cast<std::int64_t>(mine)}))
    same &= row[0] == static_cast<std::int64_t>(mine);
  // Everybody sees the same hashes, so everybody goes on to find out where.
  if (same) return;
  std::string difference = CompareOverRanks(team_, tensors);
  if (difference.empty()) difference = "the ranks' parameters differed in the last steps and are the same again";
  throw Error("step " + std::to_string(step) + ": " + difference +
              ". They were the same when training began: a bit flipped in memory, a parameter was exchanged or changed "
              "on one rank alone, or a card computes wrongly. Go back to the last checkpoint, and test the card of the "
              "rank that differs.");
}

}  // namespace fulldeck
