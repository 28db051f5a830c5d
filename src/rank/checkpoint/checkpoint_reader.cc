#include "checkpoint/checkpoint_reader.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "base/usable_cpus.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {
namespace {

using base::Error;
using base::Result;

// Small enough to be hashed from the cache.
constexpr std::size_t kChunkBytes = 512 << 10;

Error Damaged(const std::string& path, const std::string& what) {
  return Error{Quoted(path) + ": " + what, 0};
}

Error WrongSum(const CheckpointReader::PartReader& part, std::size_t tensor, std::uint64_t sum) {
  return Damaged(part.path, "tensor " + Quoted(part.header.tensors[tensor].name) + " is damaged: its checksum is " +
                                base::FormatHash(sum) + ", the manifest says " + base::FormatHash(part.hashes[tensor]) +
                                ".");
}

Error InTensor(const CheckpointReader::PartReader& part, std::size_t tensor, const Error& error) {
  return Error{"tensor " + Quoted(part.header.tensors[tensor].name) + ": " + error.message, error.system_error};
}

Result<CheckpointReader::PartReader> OpenPart(Files& files, const std::string& folder, const FileSum& sum) {
  CheckpointReader::PartReader part;
  part.name = sum.name.substr(0, sum.name.size() - kPartSuffix.size());
  part.path = folder + "/" + sum.name;
  auto file = files.Open(part.path);
  if (!file) return file.error();
  if ((*file)->size() != sum.bytes) {
    // Report the first tensor that is not completely in the file.
    std::uint64_t at = sum.head_bytes;
    std::string lost = "its header";
    if ((*file)->size() > sum.bytes) lost = "nothing, it is too long";
    for (const TensorSum& tensor : sum.tensors) {
      if ((*file)->size() < at) break;
      at += tensor.bytes;
      if ((*file)->size() < at) lost = "tensor " + Quoted(tensor.name);
    }
    return Damaged(part.path, "has " + std::to_string((*file)->size()) + " bytes, the manifest says " +
                                  std::to_string(sum.bytes) + "; the first thing missing is " + lost + ".");
  }
  if (sum.head_bytes < 8 || sum.head_bytes > kMaxHeaderBytes + 8)
    return Damaged(part.path, "has a header of no proper length.");
  std::string head(static_cast<std::size_t>(sum.head_bytes), '\0');
  if (auto read = (*file)->ReadAt(0, head.data(), head.size()); !read) return read.error();
  if (base::HashOf(head) != sum.head_hash) return Damaged(part.path, "its header is damaged: the checksum is wrong.");
  auto length = ParseHeaderLength({head.data(), 8}, sum.bytes);
  if (!length) return Damaged(part.path, length.error().message);
  if (*length + 8 != sum.head_bytes) return Damaged(part.path, "its header has another length than the manifest says.");
  auto header = ParseHeader({head.data() + 8, head.size() - 8}, sum.bytes);
  if (!header) return Damaged(part.path, header.error().message);
  if (header->tensors.size() != sum.tensors.size())
    return Damaged(part.path, "has other tensors than the manifest says.");
  for (std::size_t i = 0; i < sum.tensors.size(); ++i) {
    if (header->tensors[i].name != sum.tensors[i].name || header->tensors[i].bytes() != sum.tensors[i].bytes)
      return Damaged(part.path, "its tensor " + Quoted(header->tensors[i].name) + " is not what the manifest says.");
    part.hashes.push_back(sum.tensors[i].hash);
  }
  part.header = std::move(*header);
  part.file = std::move(*file);
  return part;
}

// Reads the data in chunks into `into`, each `stride` bytes after the previous one: 0 keeps only the checksum.
Result<void> ReadChunks(const CheckpointReader::PartReader& part, std::size_t tensor, void* into, std::size_t stride) {
  const TensorEntry& entry = part.header.tensors[tensor];
  base::Hash hash;
  auto* at = static_cast<unsigned char*>(into);
  for (std::uint64_t done = 0; done < entry.bytes(); at += stride) {
    const std::size_t chunk = static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, entry.bytes() - done));
    auto read = part.file->ReadAt(part.header.data_begin + entry.begin + done, at, chunk);
    if (!read) return InTensor(part, tensor, read.error());
    hash.Add(at, chunk);
    done += chunk;
  }
  if (hash.Sum() != part.hashes[tensor]) return WrongSum(part, tensor, hash.Sum());
  return {};
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

unsigned UsefulThreads(unsigned most) {
  return std::min(static_cast<unsigned>(base::UsableCpus()), most);
}

Result<std::vector<FoundCheckpoint>> ListCheckpoints(Files& files, const std::string& directory) {
  auto names = files.List(directory);
  std::vector<FoundCheckpoint> found;
  if (!names) {
    if (names.error().system_error == ENOENT) return found;
    return names.error();
  }
  for (const std::string& name : *names) {
    if (const auto step = StepOfFolderName(name)) found.push_back({*step, name});
    // A writer died between two renames: the older checkpoint of this step is complete under this name.
    if (name.compare(0, kReplacedPrefix.size(), kReplacedPrefix) == 0) {
      if (const auto step = StepOfFolderName(name.substr(kReplacedPrefix.size()))) found.push_back({*step, name});
    }
  }
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return a.step != b.step ? a.step > b.step : a.folder > b.folder;  // "step-…" before ".replaced-step-…"
  });
  return found;
}

Result<CheckpointReader> CheckpointReader::Open(Files& files, const std::string& folder) {
  const std::string manifest_path = folder + "/" + std::string(kManifestName);
  auto text = ReadWhole(files, manifest_path, kMaxManifestBytes);
  if (!text) return text.error();
  auto manifest = ParseManifest(*text);
  if (!manifest) return Damaged(manifest_path, manifest.error().message);

  CheckpointReader reader;
  for (const FileSum& sum : manifest->files) {
    if (EndsWith(sum.name, kPartSuffix)) {
      auto part = OpenPart(files, folder, sum);
      if (!part) return part.error();
      reader.parts_.push_back(std::move(*part));
      continue;
    }
    const std::string path = folder + "/" + sum.name;
    auto whole = ReadWhole(files, path, kMaxStateBytes);
    if (!whole) return whole.error();
    if (whole->size() != sum.bytes)
      return Damaged(path, "has " + std::to_string(whole->size()) + " bytes, the manifest says " +
                               std::to_string(sum.bytes) + ".");
    if (base::HashOf(*whole) != sum.head_hash) return Damaged(path, "is damaged: the checksum is wrong.");
    if (sum.name != kStateName) continue;
    auto scalars = ParseScalars(*whole);
    if (!scalars) return Damaged(path, scalars.error().message);
    reader.scalars_ = std::move(*scalars);
  }
  if (manifest->Find(kStateName) == nullptr) return Damaged(manifest_path, "names no " + std::string(kStateName) + ".");
  reader.manifest_ = std::move(*manifest);
  return reader;
}

const CheckpointReader::PartReader* CheckpointReader::Find(std::string_view part) const {
  for (const PartReader& reader : parts_) {
    if (reader.name == part) return &reader;
  }
  return nullptr;
}

Result<void> CheckpointReader::ReadTensor(const PartReader& part, std::size_t tensor, void* into) const {
  return ReadChunks(part, tensor, into, kChunkBytes);
}

Result<void> CheckpointReader::ReadTensors(const std::vector<TensorRequest>& requests) const {
  std::atomic<std::size_t> next{0};  // relaxed: only hands out indices; join() orders everything else
  std::mutex mutex;
  std::optional<std::pair<std::size_t, Error>> bad;
  const auto run = [&] {
    std::vector<unsigned char> spare(kChunkBytes);
    for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < requests.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      const TensorRequest& request = requests[i];
      auto read = request.into != nullptr ? ReadChunks(*request.part, request.tensor, request.into, kChunkBytes)
                                          : ReadChunks(*request.part, request.tensor, spare.data(), 0);
      if (read) continue;
      const std::lock_guard lock(mutex);
      if (!bad || i < bad->first) bad.emplace(i, read.error());
    }
  };
  std::vector<std::thread> threads;
  const std::size_t wanted = std::min<std::size_t>(UsefulThreads(8), requests.size() / 8 + 1);
  for (std::size_t i = 1; i < wanted; ++i) {
    threads.emplace_back([&run] {
      pthread_setname_np(pthread_self(), "fulldeck-read");
      run();
    });
  }
  run();
  for (std::thread& thread : threads) thread.join();
  if (bad) return bad->second;
  return {};
}

Result<void> CheckpointReader::Verify(std::size_t share, std::size_t shares) const {
  std::vector<TensorRequest> requests;
  std::size_t number = 0;
  for (const PartReader& part : parts_) {
    for (std::size_t i = 0; i < part.header.tensors.size(); ++i) {
      if (number++ % shares == share) requests.push_back({&part, i, nullptr});
    }
  }
  return ReadTensors(requests);
}

}  // namespace fulldeck::checkpoint
