// Files: everything that a checkpoint asks of the file system, as an interface, so that each of its operations can be
// made to fail or to be the last one (faulty_files.h). RealFiles is the kernel.
//
// Paths are used as they are given. Errors carry errno and name the path. Any thread may call a Files; a WritableFile
// belongs to one thread; a ReadableFile may be read by several at once.
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
  // Takes at least one byte and perhaps not all, as write() does. Whoever has more calls again: WriteAll.
  virtual base::Result<std::size_t> WriteSome(const void* data, std::size_t bytes) = 0;
  virtual base::Result<void> Sync() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::uint64_t size() const = 0;  // when it was opened
  // All of them, or an error; a file that has become shorter is an error.
  virtual base::Result<void> ReadAt(std::uint64_t offset, void* data, std::size_t bytes) const = 0;
};

// Held until it is destroyed or the process ends, however that comes.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

class Files {
 public:
  virtual ~Files() = default;

  // A new file, to which room for `bytes` is given at once where the file system can, so that a full disk is known
  // before anything is written. An existing one is an error.
  virtual base::Result<std::unique_ptr<WritableFile>> Create(const std::string& path, std::uint64_t bytes) = 0;
  virtual base::Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // With the folders above it that are missing, and durable; one that is there already is fine.
  virtual base::Result<void> MakeFolder(const std::string& path) = 0;
  // A folder takes the place of an empty one only.
  virtual base::Result<void> Rename(const std::string& from, const std::string& to) = 0;
  // Makes names durable: files created, renamed or removed in the folder.
  virtual base::Result<void> SyncFolder(const std::string& path) = 0;
  virtual base::Result<void> RemoveFile(const std::string& path) = 0;
  virtual base::Result<void> RemoveFolder(const std::string& path) = 0;  // an empty one
  // Names of what is in the folder, sorted, without "." and "..".
  virtual base::Result<std::vector<std::string>> List(const std::string& path) = 0;
  // The right to write below the folder, by a file `name` in it. Held by somebody else is an error with EAGAIN that
  // says by whom where that is known; a file system without locks is one with ENOLCK. Not passed on by fork().
  virtual base::Result<std::unique_ptr<FolderLock>> Lock(const std::string& folder, const std::string& name) = 0;
};

class RealFiles final : public Files {
 public:
  // Without syncing it is for tests that write thousands of checkpoints and lose no power.
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

// Goes on until all is written or an error comes.
base::Result<void> WriteAll(WritableFile& file, const void* data, std::size_t bytes);

// A whole file as text. One of more than `limit` bytes is an error and not read.
base::Result<std::string> ReadWhole(Files& files, const std::string& path, std::uint64_t limit);

}  // namespace fulldeck::checkpoint
