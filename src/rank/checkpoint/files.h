// Files: everything that checkpoints need from the file system, as an interface, so that each operation can be made to
// fail or to be the last one (faulty_files.h). RealFiles calls the kernel.
//
// Paths are used as given. Errors have errno and name the path. A Files is thread safe; a WritableFile belongs to one
// thread; a ReadableFile may be read by several threads concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace fulldeck::checkpoint {

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes at least one byte and possibly not all, like write(). To write everything, use WriteAll.
  virtual base::Result<std::size_t> WriteSome(const void* data, std::size_t bytes) = 0;
  virtual base::Result<void> Sync() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::uint64_t size() const = 0;  // at the time of opening
  // Reads all bytes or fails; a file that has become shorter is an error.
  virtual base::Result<void> ReadAt(std::uint64_t offset, void* data, std::size_t bytes) const = 0;
};

// Held until it is destroyed or the process exits for any reason.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

class Files {
 public:
  virtual ~Files() = default;

  // Creates a new file and reserves `bytes` bytes if the file system can, so that a full disk is detected before
  // anything is written. An existing file is an error.
  virtual base::Result<std::unique_ptr<WritableFile>> Create(const std::string& path, std::uint64_t bytes) = 0;
  virtual base::Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // Creates the folder and missing parents, durably; an existing folder is fine.
  virtual base::Result<void> MakeFolder(const std::string& path) = 0;
  // A folder can only replace an empty folder.
  virtual base::Result<void> Rename(const std::string& from, const std::string& to) = 0;
  // Makes names durable: files created, renamed or removed in the folder.
  virtual base::Result<void> SyncFolder(const std::string& path) = 0;
  virtual base::Result<void> RemoveFile(const std::string& path) = 0;
  virtual base::Result<void> RemoveFolder(const std::string& path) = 0;  // must be empty
  // Names of what is in the folder, sorted, without "." and "..".
  virtual base::Result<std::vector<std::string>> List(const std::string& path) = 0;
  // Locks the folder for writing, through a file `name` in it. If another process holds the lock, the error is EAGAIN
  // and names the holder if known; a file system without locks gives ENOLCK. Not inherited by fork().
  virtual base::Result<std::unique_ptr<FolderLock>> Lock(const std::string& folder, const std::string& name) = 0;
};

class RealFiles final : public Files {
 public:
  // syncs = false is for tests that write thousands of checkpoints and do not simulate power loss.
  explicit RealFiles(bool syncs = true) : syncs_(syncs) {}

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
  bool syncs_;
};

// Writes until everything is written or an error occurs.
base::Result<void> WriteAll(WritableFile& file, const void* data, std::size_t bytes);

// Reads a whole file. A file of more than `limit` bytes is an error and is not read.
base::Result<std::string> ReadWhole(Files& files, const std::string& path, std::uint64_t limit);

}  // namespace fulldeck::checkpoint
