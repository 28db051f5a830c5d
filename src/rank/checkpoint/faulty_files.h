// FaultyFiles: a Files that fails or dies at a chosen operation. For tests, and for users who want to see what their
// training does when the disk is full.
//
// Operations that change something are counted from 0: create, write, sync, make a folder, rename, sync a folder,
// remove. Reading is not counted. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/files.h"

namespace fulldeck::checkpoint {

struct Fault {
  enum class Kind {
    kNone,
    kError,      // returns `error`; a write has then done half of its bytes
    kCrash,      // the process dies: nothing more happens, what it wrote stays; a write has done half of its bytes
    kPowerLoss,  // like kCrash, and what was not synced is lost, as specified by `lost`
    kKill,       // this process sends itself SIGKILL; a write has done half of its bytes
  };
  // The state of the disk after power returns. Both are legal for data that was never synced.
  enum class Lost {
    kDataAndNames,    // files end where they were last synced; names that their folder did not sync are reverted
    kDataButNotNames  // the new names exist, and unsynced data reads as zeros
  };
  Kind kind = Kind::kNone;
  std::uint64_t operation = 0;
  int error = 0;
  bool lasting = false;  // kError: every later create and write fails too, until Heal()
  Lost lost = Lost::kDataAndNames;
  std::size_t longest_write = SIZE_MAX;  // upper limit of bytes per write
};

class FaultyFiles final : public Files {
 public:
  // `below` must outlive this object.
  FaultyFiles(Files& below, Fault fault);
  ~FaultyFiles() override;

  std::uint64_t operations() const;  // so far
  bool dead() const;                 // the crash or the power loss has happened
  void Heal();                       // no more faults; not after a crash

  base::Result<std::unique_ptr<WritableFile>> Create(const std::string& path, std::uint64_t bytes) override;
  base::Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  base::Result<void> MakeFolder(const std::string& path) override;
  base::Result<void> Rename(const std::string& from, const std::string& to) override;
  base::Result<void> SyncFolder(const std::string& path) override;
  base::Result<void> RemoveFile(const std::string& path) override;
  base::Result<void> RemoveFolder(const std::string& path) override;
  base::Result<std::vector<std::string>> List(const std::string& path) override;
  base::Result<std::unique_ptr<FolderLock>> Lock(const std::string& folder, const std::string& name) override;

 private:
  friend class FaultyWritableFile;
  struct Written {
    std::string path;  // where it is now
    std::uint64_t bytes = 0;
    std::uint64_t synced = 0;
  };
  struct NewName {
    std::string from;  // empty: created
    std::string to;
  };

  // Counts the next operation; returns an error if the fault applies to it. In that case, `half` runs first if the kind
  // of fault allows it.
  base::Result<void> NextOperation(const std::string& what, bool grows, const std::function<void()>& half = {});
  void LosePower();

  Files& below_;
  mutable std::mutex mutex_;
  Fault fault_;
  std::uint64_t operations_ = 0;
  bool dead_ = false;
  std::vector<std::shared_ptr<Written>> written_;
  std::vector<NewName> new_names_;  // not synced yet, oldest first
};

}  // namespace fulldeck::checkpoint
