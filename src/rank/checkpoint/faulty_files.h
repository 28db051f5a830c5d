// FaultyFiles: a Files that fails or dies at an operation of one's choice. For tests, and for whoever wants to see what
// their training does when the disk fills up.
//
// Operations that change something are counted from 0: create, write, sync, make a folder, rename, sync a folder,
// remove. Reading is not counted. Any thread may call it.
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
    kError,      // `error` is returned; a write has then done half of its bytes
    kCrash,      // the process is gone: nothing more happens, what it wrote stays; a write has done half of its bytes
    kPowerLoss,  // as kCrash, and what was not synced is lost, in the way that `lost` says
    kKill,       // this process sends itself SIGKILL; a write has done half of its bytes
  };
  // What a disk may show after the power came back. All of them are legal for data that were never synced.
  enum class Lost {
    kDataAndNames,    // files end where they were last synced; names that their folder did not sync are as before
    kDataButNotNames  // the new names are there, and zeros stand where unsynced data were
  };
  Kind kind = Kind::kNone;
  std::uint64_t operation = 0;
  int error = 0;
  bool lasting = false;  // kError: every later create and write too, until Heal()
  Lost lost = Lost::kDataAndNames;
  std::size_t longest_write = SIZE_MAX;  // writes take no more than this many bytes each
};

class FaultyFiles final : public Files {
 public:
  // `below` must live as long.
  FaultyFiles(Files& below, Fault fault);
  ~FaultyFiles() override;

  std::uint64_t operations() const;  // so far
  bool dead() const;                 // the crash or the power loss has come
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

  // What the next operation meets: nothing, or an error to return. `half` is done first where the fault allows it.
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
