#include "launcher/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "base/files/open_without_links.h"
#include "base/text.h"
#include "wire/private_folder.h"

namespace fulldeck::launcher {
namespace {

base::Result<void> MakeFolders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) return base::ErrnoError(base::Printable(part));
    if (end == std::string::npos) return {};
  }
}

// In a folder such as /tmp every user may create folders, and whoever created LOG_DIR there can replace files of the
// run with links. `absolute` contains no links. Folders that are writable for others without the sticky bit, or that
// belong to another user, are the caller's choice: there the script itself can be replaced.
base::Result<void> CheckOwners(const std::string& absolute) {
  bool shared = false;  // whether the parent folder is writable for every user
  for (std::size_t end = absolute.find('/', 1);; end = absolute.find('/', end + 1)) {
    const std::string part = absolute.substr(0, end);
    struct stat status {};
    if (lstat(part.c_str(), &status) != 0) return base::ErrnoError(base::Printable(part));
    if (shared && status.st_uid != 0 && status.st_uid != geteuid()) {
      return base::Error{fmt::format("{} belongs to user {}, in a folder where everybody may make folders",
                                     base::Printable(part), status.st_uid)};
    }
    shared = (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) != 0;
    if (end == std::string::npos) return {};
  }
}

base::Result<base::UniqueFd> OpenToAppend(const std::string& path) {
  base::UniqueFd file(base::OpenWithoutLinks(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!file.valid()) return base::ErrnoError(base::Printable(path));
  return file;
}

// Creates FOLDER/name. FOLDER is opened without following links, because another user may have replaced it since its
// creation.
base::Result<void> MakeFolderIn(const std::string& folder, const std::string& name) {
  const base::UniqueFd parent(base::OpenWithoutLinks(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid()) return base::ErrnoError(base::Printable(folder));
  if (mkdirat(parent.get(), name.c_str(), 0777) != 0) return base::ErrnoError(base::Printable(folder + "/" + name));
  return {};
}

RankFiles FilesIn(const std::string& folder) {
  return {folder + "/stdout.log",
          folder + "/stderr.log",
          folder + "/error.json",
          folder + "/crash.txt",
          folder + "/stacks.txt",
          {},
          {}};
}

base::Error CannotLog(const base::Error& why) {
  return {fmt::format("cannot write logs: {}. Name a folder that can be written with --log-dir", why.message),
          why.system_error};
}

}  // namespace

base::Result<RunDirectory> RunDirectory::Make(const std::string& log_dir, const std::string& name, bool for_others) {
  const mode_t mode = for_others ? 0777 : 0700;
  const auto folders = MakeFolders(log_dir);
  if (!folders) return CannotLog(folders.error());
  std::array<char, 4096> absolute{};
  if (realpath(log_dir.c_str(), absolute.data()) == nullptr) return CannotLog(base::ErrnoError(log_dir));
  if (const auto owners = CheckOwners(absolute.data()); !owners) return CannotLog(owners.error());
  RunDirectory made;
  constexpr int kSameNames = 10'000;
  for (int number = 1; number <= kSameNames; ++number) {
    made.path_ = fmt::format("{}/{}{}", absolute.data(), name, number == 1 ? "" : fmt::format("_{}", number));
    if (mkdir(made.path_.c_str(), mode) == 0) break;
    if (errno != EEXIST || number == kSameNames) return CannotLog(base::ErrnoError(base::Printable(made.path_)));
  }
  if (const auto logs = MakeFolderIn(made.path_, "logs"); !logs) return CannotLog(logs.error());
  return made;
}

bool IsOutOfRoom(const base::Error& error) {
  return error.system_error == ENOSPC || error.system_error == EDQUOT;
}

base::Result<RankFiles> RunDirectory::MakeRankFiles(int attempt, int local_rank) const {
  const std::string attempt_path = attempt_folder(attempt);
  RankFiles files = FilesIn(attempt_path + "/" + std::to_string(local_rank));
  const auto made = MakeFolderIn(path_, attempt_path.substr(path_.size() + 1));
  if (!made && made.error().system_error != EEXIST) return CannotLog(made.error());
  if (const auto own = MakeFolderIn(attempt_path, std::to_string(local_rank)); !own) return CannotLog(own.error());
  auto out = OpenToAppend(files.stdout_path);
  if (!out) return CannotLog(out.error());
  auto err = OpenToAppend(files.stderr_path);
  if (!err) return CannotLog(err.error());
  files.stdout_file = std::move(*out);
  files.stderr_file = std::move(*err);
  return files;
}

base::Result<RankFiles> RunDirectory::RankFilesWithoutOutput(int attempt, int local_rank) const {
  RankFiles files = FilesIn(attempt_folder(attempt) + "/" + std::to_string(local_rank));
  for (base::UniqueFd* file : {&files.stdout_file, &files.stderr_file}) {
    file->Reset(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!file->valid()) return CannotLog(base::ErrnoError("/dev/null"));
  }
  return files;
}

base::Result<std::string> PrivateLogFolder(const std::string& temporary) {
  const auto parents = MakeFolders(temporary);
  if (!parents) return CannotLog(parents.error());
  std::string folder = temporary + "/fulldeck_runs-" + std::to_string(geteuid());
  if (wire::MakePrivateFolder(folder, "TMPDIR")) {
    // A folder of this user may have been readable for others before.
    struct stat status {};
    const bool closed = lstat(folder.c_str(), &status) == 0 &&
                        ((status.st_mode & 077) == 0 || chmod(folder.c_str(), status.st_mode & 0700) == 0);
    if (closed) return folder;
  }
  folder += ".XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return CannotLog(base::ErrnoError(base::Printable(folder)));
  return folder;
}

std::string NewRunId() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &parts);
  std::array<unsigned char, 4> chance{};
  if (getrandom(chance.data(), chance.size(), 0) < 0) chance[0] = static_cast<unsigned char>(getpid());
  std::string id = std::string(stamp.data()) + "-";
  for (const unsigned char byte : chance) id += "abcdefghijkmnpqrstuvwxyz23456789"[byte % 32];
  return id;
}

bool IsGeneratedRunId(std::string_view id) {
  constexpr std::string_view kShape = "dddddddd-dddddd-llll";
  if (id.size() != kShape.size()) return false;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const bool digit = id[i] >= '0' && id[i] <= '9';
    const bool letter = id[i] >= 'a' && id[i] <= 'z';
    if (kShape[i] == 'd' ? !digit : kShape[i] == 'l' ? !digit && !letter : id[i] != '-') return false;
  }
  return true;
}

}  // namespace fulldeck::launcher
