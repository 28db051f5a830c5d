// Store: a directory of checkpoints and the one process that writes to it.
//
// Open() takes the directory's lock (held until the Store is destroyed or the process dies), repairs what a dead writer
// left, and lists the existing checkpoints. Readers need no Store: see ListCheckpoints and CheckpointReader. Not thread
// safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/files.h"
#include "checkpoint/retention.h"

namespace fulldeck::checkpoint {

struct StoreOptions {
  RetentionRule keep;
  bool read_back = true;
};

class Store {
 public:
  // `files` must outlive the Store. `log` receives messages for the user: what was left behind and removed, and what
  // could not be removed. Fails if the directory cannot be created or another process writes to it.
  static base::Result<Store> Open(Files& files, const std::string& directory, const StoreOptions& options,
                                  std::function<void(const std::string&)> log);

  // The checkpoint is durable on return; then those that the retention rule releases are removed. On an error,
  // everything that existed still exists.
  base::Result<Manifest> Save(const Contents& contents);

  // Records the result of verifying a checkpoint of this directory.
  void SetTrust(std::uint64_t step, KeptCheckpoint::Trust trust);

  const std::string& directory() const { return directory_; }

 private:
  Store(Files& files, std::string directory, StoreOptions options, std::function<void(const std::string&)> log)
      : files_(&files), directory_(std::move(directory)), options_(options), log_(std::move(log)) {}
  base::Result<void> Repair(const std::vector<std::string>& names);
  void Retain();

  Files* files_;
  std::string directory_;
  StoreOptions options_;
  std::function<void(const std::string&)> log_;
  std::unique_ptr<FolderLock> lock_;  // null if the file system has no locks
  std::map<std::uint64_t, KeptCheckpoint> known_;
};

}  // namespace fulldeck::checkpoint
