#include "checkpoint/faulty_files.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

namespace fulldeck::checkpoint {
namespace {

using base::Error;
using base::Result;

Error Gone() {
  return Error{"the process is gone (a fault that was asked for).", ECANCELED};
}

std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

bool IsAtOrBelow(const std::string& path, const std::string& folder) {
  return path.compare(0, folder.size(), folder) == 0 && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

class FaultyWritableFile final : public WritableFile {
 public:
  using Written = FaultyFiles::Written;
  FaultyWritableFile(FaultyFiles& files, std::unique_ptr<WritableFile> below, std::shared_ptr<Written> written)
      : files_(files), below_(std::move(below)), written_(std::move(written)) {}

  Result<std::size_t> WriteSome(const void* data, std::size_t bytes) override {
    const std::lock_guard lock(files_.mutex_);
    bytes = std::min(bytes, files_.fault_.longest_write);
    const auto half = [&] {
      if (auto done = WriteAll(*below_, data, bytes / 2)) written_->bytes += bytes / 2;
    };
    if (auto result = files_.NextOperation("writing \"" + written_->path + "\"", true, half); !result)
      return result.error();
    auto done = below_->WriteSome(data, bytes);
    if (done) written_->bytes += *done;
    return done;
  }
  Result<void> Sync() override {
    const std::lock_guard lock(files_.mutex_);
    if (auto result = files_.NextOperation("syncing \"" + written_->path + "\"", false); !result) return result;
    written_->synced = written_->bytes;
    return below_->Sync();
  }

 private:
  FaultyFiles& files_;
  std::unique_ptr<WritableFile> below_;
  std::shared_ptr<Written> written_;
};

FaultyFiles::FaultyFiles(Files& below, Fault fault) : below_(below), fault_(fault) {}
FaultyFiles::~FaultyFiles() = default;

std::uint64_t FaultyFiles::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

bool FaultyFiles::dead() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

void FaultyFiles::Heal() {
  const std::lock_guard lock(mutex_);
  fault_ = Fault{};
}

Result<void> FaultyFiles::NextOperation(const std::string& what, bool grows, const std::function<void()>& half) {
  if (dead_) return Gone();
  const std::uint64_t now = operations_++;
  if (fault_.kind == Fault::Kind::kNone) return {};
  const bool lasts = fault_.kind == Fault::Kind::kError && fault_.lasting && grows && now > fault_.operation;
  if (now != fault_.operation && !lasts) return {};
  if (half) half();
  switch (fault_.kind) {
    case Fault::Kind::kError:
      return base::ErrnoError(what, fault_.error);
    case Fault::Kind::kKill:
      kill(getpid(), SIGKILL);
      break;
    case Fault::Kind::kPowerLoss:
      LosePower();
      break;
    default:
      break;
  }
  dead_ = true;
  return Gone();
}

void FaultyFiles::LosePower() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const auto& file : written_) {
    if (file->synced == file->bytes || !fs::exists(file->path, ignored)) continue;
    fs::resize_file(file->path, file->synced, ignored);
    if (fault_.lost == Fault::Lost::kDataButNotNames) fs::resize_file(file->path, file->bytes, ignored);
  }
  if (fault_.lost == Fault::Lost::kDataButNotNames) return;
  for (auto name = new_names_.rbegin(); name != new_names_.rend(); ++name) {
    if (name->from.empty()) {
      fs::remove_all(name->to, ignored);
    } else {
      fs::rename(name->to, name->from, ignored);
    }
  }
}

Result<std::unique_ptr<WritableFile>> FaultyFiles::Create(const std::string& path, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (auto result = NextOperation("creating \"" + path + "\"", true); !result) return result.error();
  auto file = below_.Create(path, bytes);
  if (!file) return file.error();
  new_names_.push_back({"", path});
  written_.push_back(std::make_shared<Written>(Written{path}));
  return std::unique_ptr<WritableFile>(std::make_unique<FaultyWritableFile>(*this, std::move(*file), written_.back()));
}

Result<std::unique_ptr<ReadableFile>> FaultyFiles::Open(const std::string& path) {
  if (dead()) return Gone();
  return below_.Open(path);
}

Result<void> FaultyFiles::MakeFolder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (auto result = NextOperation("making the folder \"" + path + "\"", true); !result) return result;
  const bool is_new = !std::filesystem::exists(path);
  auto made = below_.MakeFolder(path);
  if (made && is_new) new_names_.push_back({"", path});
  return made;
}

Result<void> FaultyFiles::Rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  if (auto result = NextOperation("renaming \"" + from + "\" to \"" + to + "\"", false); !result) return result;
  auto renamed = below_.Rename(from, to);
  if (!renamed) return renamed;
  for (const auto& file : written_) {
    if (IsAtOrBelow(file->path, from)) file->path = to + file->path.substr(from.size());
  }
  new_names_.push_back({from, to});
  return {};
}

Result<void> FaultyFiles::SyncFolder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (auto result = NextOperation("syncing the folder \"" + path + "\"", false); !result) return result;
  new_names_.erase(std::remove_if(new_names_.begin(), new_names_.end(),
                                  [&](const NewName& name) { return FolderOf(name.to) == path; }),
                   new_names_.end());
  return below_.SyncFolder(path);
}

Result<void> FaultyFiles::RemoveFile(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (auto result = NextOperation("removing \"" + path + "\"", false); !result) return result;
  return below_.RemoveFile(path);
}

Result<void> FaultyFiles::RemoveFolder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (auto result = NextOperation("removing the folder \"" + path + "\"", false); !result) return result;
  return below_.RemoveFolder(path);
}

Result<std::vector<std::string>> FaultyFiles::List(const std::string& path) {
  if (dead()) return Gone();
  return below_.List(path);
}

Result<std::unique_ptr<FolderLock>> FaultyFiles::Lock(const std::string& folder, const std::string& name) {
  if (dead()) return Gone();
  return below_.Lock(folder, name);
}

}  // namespace fulldeck::checkpoint
