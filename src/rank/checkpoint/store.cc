#include "checkpoint/store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {
namespace {

using base::Result;

bool BeginsWith(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

Result<Store> Store::Open(Files& files, const std::string& directory, const StoreOptions& options,
                          std::function<void(const std::string&)> log) {
  Store store(files, directory, options, std::move(log));
  if (auto made = files.MakeFolder(directory); !made) return made.error();
  auto lock = files.Lock(directory, ".lock");
  if (lock) {
    store.lock_ = std::move(*lock);
  } else if (lock.error().system_error != ENOLCK) {
    return lock.error();
  } else {
    store.log_("checkpoints in " + Quoted(directory) +
               ": this file system has no locks, so nobody is kept from writing there twice, and what dead writers "
               "left is not removed.");
  }
  auto names = files.List(directory);
  if (!names) return names.error();
  // Only a holder of the lock knows that a half-written folder has no writer.
  if (store.lock_ != nullptr) {
    if (auto right = store.Repair(*names); !right) return right.error();
  }
  auto found = ListCheckpoints(files, directory);
  if (!found) return found.error();
  for (const FoundCheckpoint& checkpoint : *found) {
    KeptCheckpoint kept{checkpoint.step, std::nullopt, KeptCheckpoint::Trust::kUnknown};
    const std::string path = directory + "/" + checkpoint.folder + "/" + std::string(kManifestName);
    auto text = ReadWhole(files, path, kMaxManifestBytes);
    if (text) {
      auto manifest = ParseManifest(*text);
      if (manifest) kept.score = manifest->score;
      if (!manifest) kept.trust = KeptCheckpoint::Trust::kBad;
    } else if (text.error().system_error == ENOENT) {
      kept.trust = KeptCheckpoint::Trust::kBad;
    }
    store.known_.emplace(checkpoint.step, kept);
  }
  return store;
}

Result<void> Store::Repair(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string path = directory_ + "/" + name;
    const bool replaced = BeginsWith(name, kReplacedPrefix);
    if (replaced && !std::binary_search(names.begin(), names.end(), name.substr(kReplacedPrefix.size()))) {
      const std::string old = name.substr(kReplacedPrefix.size());
      if (auto renamed = files_->Rename(path, directory_ + "/" + old); !renamed) return renamed;
      if (auto synced = files_->SyncFolder(directory_); !synced) return synced;
      log_("checkpoint " + base::Printable(old) + " is put back under its name: a writer that died was replacing it.");
      continue;
    }
    if (!replaced && !BeginsWith(name, kWritingPrefix) && !BeginsWith(name, kRemovingPrefix)) continue;
    // Not an error: a failed removal is logged, and the folder stays.
    if (auto removed = RemoveFolderOfFiles(*files_, path); !removed) {
      log_(Quoted(path) + " is left of a writer that died and cannot be removed: " + removed.error().message);
    } else if (BeginsWith(name, kWritingPrefix)) {
      log_("removed " + Quoted(path) + ", a checkpoint that its writer did not live to finish.");
    }
  }
  return {};
}

Result<Manifest> Store::Save(const Contents& contents) {
  auto manifest = WriteCheckpoint(*files_, directory_, contents, {options_.read_back});
  if (!manifest) return manifest;
  const auto trust = options_.read_back ? KeptCheckpoint::Trust::kVerified : KeptCheckpoint::Trust::kUnknown;
  known_[contents.step] = {contents.step, contents.score, trust};
  Retain();
  return manifest;
}

void Store::SetTrust(std::uint64_t step, KeptCheckpoint::Trust trust) {
  if (const auto found = known_.find(step); found != known_.end()) found->second.trust = trust;
}

void Store::Retain() {
  std::vector<KeptCheckpoint> kept;
  for (const auto& [step, checkpoint] : known_) kept.push_back(checkpoint);
  for (const std::uint64_t step : StepsToRemove(kept, options_.keep)) {
    const std::string name = FolderNameOf(step);
    const std::string going = directory_ + "/" + std::string(kRemovingPrefix) + name;
    // Renamed first: a half-removed checkpoint must not exist under a name that readers look for.
    auto done = files_->Rename(directory_ + "/" + name, going);
    if (done) done = files_->SyncFolder(directory_);
    if (done) done = RemoveFolderOfFiles(*files_, going);
    if (done || done.error().system_error == ENOENT) {
      known_.erase(step);
      continue;
    }
    log_("the old checkpoint " + name + " is no longer kept but cannot be removed: " + done.error().message);
  }
}

}  // namespace fulldeck::checkpoint
