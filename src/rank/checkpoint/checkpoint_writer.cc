#include "checkpoint/checkpoint_writer.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {
namespace {

using base::Error;
using base::Result;

// Hashed while it is in the cache, then passed to the kernel.
constexpr std::size_t kChunkBytes = 1 << 20;

Result<std::uint64_t> WriteHashed(WritableFile& file, const void* data, std::uint64_t bytes) {
  base::Hash hash;
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t chunk = static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, bytes - done));
    hash.Add(at + done, chunk);
    if (auto written = WriteAll(file, at + done, chunk); !written) return written.error();
    done += chunk;
  }
  return hash.Sum();
}

Result<FileSum> WritePart(Files& files, const std::string& folder, const Part& part) {
  std::vector<const TensorData*> order;
  for (const TensorData& tensor : part.tensors) order.push_back(&tensor);
  // Wide elements first: each tensor then starts at a multiple of its element size, which readers that map the file
  // prefer.
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorData* a, const TensorData* b) { return BytesOf(a->dtype) > BytesOf(b->dtype); });
  std::vector<TensorEntry> entries;
  for (const TensorData* tensor : order) entries.push_back({tensor->name, tensor->dtype, tensor->shape});
  auto head = FormatHeader(entries, {{"format", "pt"}});
  if (!head) return head.error();

  FileSum sum{part.name + std::string(kPartSuffix), head->size(), head->size(), base::HashOf(*head), {}};
  for (const TensorEntry& entry : entries) sum.bytes += entry.bytes();
  auto file = files.Create(folder + "/" + sum.name, sum.bytes);
  if (!file) return file.error();
  if (auto written = WriteAll(**file, head->data(), head->size()); !written) return written.error();
  for (std::size_t i = 0; i < order.size(); ++i) {
    auto hash = WriteHashed(**file, order[i]->data, entries[i].bytes());
    if (!hash) return hash.error();
    sum.tensors.push_back({entries[i].name, entries[i].bytes(), *hash});
  }
  if (auto synced = (*file)->Sync(); !synced) return synced.error();
  return sum;
}

Result<FileSum> WriteText(Files& files, const std::string& folder, std::string_view name, const std::string& text) {
  auto file = files.Create(folder + "/" + std::string(name), text.size());
  if (!file) return file.error();
  if (auto written = WriteAll(**file, text.data(), text.size()); !written) return written.error();
  if (auto synced = (*file)->Sync(); !synced) return synced.error();
  return FileSum{std::string(name), text.size(), text.size(), base::HashOf(text), {}};
}

Result<Manifest> WriteFiles(Files& files, const std::string& folder, const Contents& contents) {
  Manifest manifest;
  manifest.step = contents.step;
  manifest.world_size = contents.world_size;
  manifest.score = contents.score;
  manifest.saved_at = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  for (const Part& part : contents.parts) {
    auto sum = WritePart(files, folder, part);
    if (!sum) return sum.error();
    manifest.files.push_back(std::move(*sum));
  }
  auto scalars = FormatScalars(contents.scalars);
  if (!scalars) return scalars.error();
  auto sum = WriteText(files, folder, kStateName, *scalars);
  if (!sum) return sum.error();
  manifest.files.push_back(std::move(*sum));
  if (auto written = WriteText(files, folder, kManifestName, FormatManifest(manifest)); !written)
    return written.error();
  if (auto synced = files.SyncFolder(folder); !synced) return synced.error();
  return manifest;
}

Result<void> ReadBack(Files& files, const std::string& folder, const Manifest& written) {
  auto reader = CheckpointReader::Open(files, folder);
  if (!reader) return reader.error();
  if (!(reader->manifest() == written)) return Error{"its manifest is not what was written.", 0};
  return reader->Verify();
}

// Renames the finished folder to its final name. Another checkpoint of the same step is moved aside first and restored
// if the rename fails. If the writer dies in between, ListCheckpoints still finds it under that name, and the next
// Store::Open repairs it.
Result<void> TakeName(Files& files, const std::string& directory, const std::string& finished, std::uint64_t step) {
  const std::string name = FolderNameOf(step);
  const std::string to = directory + "/" + name;
  const std::string aside = directory + "/" + std::string(kReplacedPrefix) + name;
  auto names = files.List(directory);
  if (!names) return names.error();
  const bool exists = std::binary_search(names->begin(), names->end(), name);
  if (exists) {
    if (auto removed = RemoveFolderOfFiles(files, aside); !removed) return removed;
    if (auto renamed = files.Rename(to, aside); !renamed) return renamed;
  }
  auto done = files.Rename(finished, to);
  if (done) {
    done = files.SyncFolder(directory);
    // It may be durable or not; a checkpoint that was reported as failed must not be found.
    if (!done) (void)files.Rename(to, finished);
  }
  if (!done) {
    if (exists) (void)files.Rename(aside, to);
    return done;
  }
  // The error is ignored: what cannot be removed now is removed by the next run.
  if (exists) (void)RemoveFolderOfFiles(files, aside);
  return {};
}

std::string WritingName(std::uint64_t step) {
  static std::atomic<unsigned> count{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return std::string(kWritingPrefix) + FolderNameOf(step) + "-" + std::to_string(getpid()) + "-" + std::to_string(now) +
         "-" + std::to_string(count.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace

std::string FolderNameOf(std::uint64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(digits.size() < 9 ? 9 - digits.size() : 0, '0') + digits;
}

std::optional<std::uint64_t> StepOfFolderName(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const auto step = base::ParseInteger<std::uint64_t>(name.substr(kPrefix.size()));
  if (!step || *step > kMaxStep || FolderNameOf(*step) != name) return std::nullopt;
  return step;
}

Result<Manifest> WriteCheckpoint(Files& files, const std::string& directory, const Contents& contents,
                                 const WriteOptions& options) {
  if (contents.step > kMaxStep) return Error{"step " + std::to_string(contents.step) + " is too large.", 0};
  for (const Part& part : contents.parts) {
    if (!IsFileName(part.name))
      return Error{
          "a part of a checkpoint cannot be named " + Quoted(part.name) + ": letters, digits, '.', '_' and '-' only.",
          0};
  }
  const std::string folder = directory + "/" + WritingName(contents.step);
  Result<void> done = files.MakeFolder(folder);
  auto manifest = done ? WriteFiles(files, folder, contents) : Result<Manifest>(done.error());
  if (!manifest) {
    done = manifest.error();
  } else if (options.read_back) {
    done = ReadBack(files, folder, *manifest);
    if (!done)
      done = Error{"what was written is not what is read back: " + done.error().message, done.error().system_error};
  }
  if (done) done = TakeName(files, directory, folder, contents.step);
  if (!done) {
    (void)RemoveFolderOfFiles(files, folder);
    std::string message = "checkpoint of step " + std::to_string(contents.step) + " not saved: " + done.error().message;
    if (message.back() != '.') message += '.';
    return Error{std::move(message), done.error().system_error};
  }
  return manifest;
}

Result<void> RemoveFolderOfFiles(Files& files, const std::string& path) {
  auto names = files.List(path);
  if (!names) return names.error().system_error == ENOENT ? Result<void>() : Result<void>(names.error());
  for (const std::string& name : *names) {
    if (auto removed = files.RemoveFile(path + "/" + name); !removed && removed.error().system_error != ENOENT)
      return removed;
  }
  return files.RemoveFolder(path);
}

}  // namespace fulldeck::checkpoint
