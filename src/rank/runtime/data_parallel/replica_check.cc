#include "fulldeck/replica_check.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "runtime/data_parallel/replica_difference.h"

namespace fulldeck {
namespace {

constexpr std::uint64_t kAlignment = 64;      // of the shares into which a round is split
constexpr std::size_t kChunkBytes = 4 << 20;  // staging size for a card's tensor

at::Tensor BytesOf(const at::Tensor& tensor) {
  // The values in logical order.
  return tensor.detach().contiguous().reshape({-1}).view(at::kByte);
}

// The hash does not depend on where the bytes are.
void AddPart(base::Hash& hash, const at::Tensor& bytes, std::int64_t begin, std::int64_t end) {
  if (bytes.device().is_cpu()) {
    hash.Add(bytes.const_data_ptr<std::uint8_t>() + begin, static_cast<std::size_t>(end - begin));
    return;
  }
  for (std::int64_t at = begin; at < end; at += kChunkBytes) {
    const at::Tensor chunk = bytes.slice(0, at, std::min<std::int64_t>(end, at + kChunkBytes)).cpu();
    hash.Add(chunk.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(chunk.numel()));
  }
}

// Gathers one row of words per rank.
std::vector<std::vector<std::int64_t>> GatherWords(const Team& team, const std::vector<std::int64_t>& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  at::Tensor words = at::empty({length}, at::kLong);
  std::copy(mine.begin(), mine.end(), words.data_ptr<std::int64_t>());
  const at::Tensor all = runtime::RowsOfRanks(team, words.to(team.device)).cpu();
  std::vector<std::vector<std::int64_t>> rows;
  const auto* word = all.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < team.world_size; ++rank, word += length) rows.emplace_back(word, word + length);
  return rows;
}

}  // namespace

namespace runtime {

at::Tensor RowsOfRanks(const Team& team, const at::Tensor& mine) {
  const at::Tensor all = at::empty({team.world_size, mine.numel()}, mine.options());
  std::vector<std::vector<at::Tensor>> rows = {all.unbind(0)};
  std::vector<at::Tensor> given = {mine};
  team.group->allgather(rows, given)->wait();
  return all;
}

}  // namespace runtime

std::uint64_t HashOfBytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  base::Hash hash;
  hash.Add(&seed, sizeof seed);
  hash.Add(data, bytes);
  return hash.Sum();
}

std::uint64_t HashOfTensor(const at::Tensor& tensor, std::uint64_t seed) {
  const at::Tensor bytes = BytesOf(tensor);
  base::Hash hash;
  hash.Add(&seed, sizeof seed);
  AddPart(hash, bytes, 0, bytes.numel());
  return hash.Sum();
}

std::string CompareOverRanks(const Team& team, const std::vector<NamedTensor>& tensors) {
  std::vector<std::int64_t> mine;
  for (const NamedTensor& named : tensors) mine.push_back(static_cast<std::int64_t>(HashOfTensor(named.tensor)));
  if (mine.empty()) return {};
  std::vector<std::string> names;
  for (const NamedTensor& named : tensors) names.push_back(named.name);
  return runtime::DescribeDifference(GatherWords(team, mine), names);
}

ReplicaCheck::ReplicaCheck(Team team, int every) : team_(std::move(team)), every_(static_cast<std::uint64_t>(every)) {
  if (every < 1) throw Error("a replica check every " + std::to_string(every) + " steps is impossible; at least 1.");
}

void ReplicaCheck::Step(const std::vector<NamedTensor>& tensors, std::uint64_t step) {
  std::uint64_t total = 0;
  for (const NamedTensor& named : tensors) total += named.tensor.nbytes();
  const auto border = [&](std::uint64_t part) {
    return part == every_ ? total : total / every_ * part / kAlignment * kAlignment;
  };
  const std::uint64_t begin = border(part_);
  const std::uint64_t end = border(part_ + 1);
  base::Hash hash;
  hash.Add(&hash_, sizeof hash_);  // chains the shares hashed before
  std::uint64_t at = 0;
  for (const NamedTensor& named : tensors) {
    const std::uint64_t length = named.tensor.nbytes();
    const std::uint64_t from = std::max(begin, at);
    const std::uint64_t to = std::min(end, at + length);
    if (from < to) {
      AddPart(hash, BytesOf(named.tensor), static_cast<std::int64_t>(from - at), static_cast<std::int64_t>(to - at));
    }
    at += length;
    if (at >= end) break;
  }
  hash_ = hash.Sum();
  if (++part_ < every_) return;

  part_ = 0;
  const std::uint64_t mine = std::exchange(hash_, 0);
  fingerprint_ = mine == 0 ? 1 : mine;
  bool same = true;
  for (const auto& row : GatherWords(team_, {static_cast<std::int64_t>(mine)}))
    same &= row[0] == static_cast<std::int64_t>(mine);
  // All ranks see the same hashes, so all of them continue with the search for the difference.
  if (same) return;
  std::string difference = CompareOverRanks(team_, tensors);
  if (difference.empty()) difference = "the ranks' parameters differed in the last steps and are the same again";
  throw Error("step " + std::to_string(step) + ": " + difference +
              ". They were the same when training began: a bit flipped in memory, a parameter was exchanged or changed "
              "on one rank alone, or a card computes wrongly. Go back to the last checkpoint, and test the card of the "
              "rank that differs.");
}

}  // namespace fulldeck
