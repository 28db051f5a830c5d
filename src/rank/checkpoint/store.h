// Store: a directory of checkpoints and the one process that writes there.
//
// Opening takes the directory's lock (kept until the Store is gone or the process dies), puts right what a writer that
// died has left, and looks at what is there. Readers need no Store: ListCheckpoints and CheckpointReader. Not thread
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
  // `files` must live as long. `log` gets sentences for people: what was left and removed, what could not be. An error
  // when the directory cannot be made or another process writes there.
  static base::Result<Store> Open(Files& files, const std::string& directory, const StoreOptions& options,
                                  std::function<void(const std::string&)> log);

  // Durable when it returns; then what the rule lets go is removed. On an error everything that was there still is.
  base::Result<Manifest> Save(const Contents& contents);

  // What a reader found out about a checkpoint of this directory.
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
  std::unique_ptr<FolderLock> lock_;  // null where the file system has none
  std::map<std::uint64_t, KeptCheckpoint> known_;
};

}  // namespace fulldeck::checkpoint
