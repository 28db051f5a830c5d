#include "patch/patched_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/files/unique_fd.h"
#include "base/files/whole_file.h"
#include "base/hash.h"
#include "base/text.h"

namespace fulldeck::patch {
namespace {

using base::ErrnoError;
using base::Error;
using base::Result;

constexpr std::size_t kLargestFile = 4u << 20;
constexpr char kNoteTitle[] = "fulldeck patch 1";

std::string Named(const std::string& path) {
  return base::Printable(path);
}

bool Exists(const std::string& path) {
  struct stat facts {};
  return lstat(path.c_str(), &facts) == 0;
}

Result<void> SyncFolder(const std::string& folder) {
  const base::UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError("cannot open " + Named(folder));
  // Some file systems cannot sync a folder and return an error; the rename is done nevertheless.
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) return ErrnoError("cannot sync " + Named(folder));
  return {};
}

// Creates a file with this text, which is on the disk when the function returns, with the owner and mode of `like`.
Result<void> WriteSynced(const std::string& path, const std::string& text, const std::string& like) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoError("cannot replace " + Named(path));
  struct stat facts {};
  if (stat(like.c_str(), &facts) != 0) return ErrnoError("cannot look at " + Named(like));
  const base::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoError("cannot write " + Named(path));
  if (auto written = base::WriteAllTo(file.get(), text, path); !written) return written;
  if (fchown(file.get(), facts.st_uid, facts.st_gid) != 0 && facts.st_uid != geteuid()) {
    return ErrnoError(fmt::format("cannot give {} to its owner, user {}", Named(path), facts.st_uid));
  }
  if (fchmod(file.get(), facts.st_mode & 07777) != 0) return ErrnoError("cannot set the mode of " + Named(path));
  if (fsync(file.get()) != 0) return ErrnoError("cannot write " + Named(path));
  return {};
}

struct Sum {
  std::uint64_t hash = 0;
  std::size_t length = 0;
  bool operator==(const Sum&) const = default;
};

Sum SumOf(const std::string& text) {
  return {base::HashOf(text), text.size()};
}

std::string FormatSum(const Sum& sum) {
  return fmt::format("{} {}", base::FormatHash(sum.hash), sum.length);
}

std::optional<Sum> ParseSum(std::string_view text) {
  const auto words = base::Split(text, ' ');
  if (words.size() != 2) return std::nullopt;
  const auto hash = base::ParseHash(words[0]);
  const auto length = base::ParseInteger<std::size_t>(words[1]);
  if (!hash || !length) return std::nullopt;
  return Sum{*hash, *length};
}

// While the lock is held, no other fulldeck changes files in the folder.
Result<base::UniqueFd> Lock(const std::string& folder) {
  base::UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError("cannot open " + Named(folder));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  // Proceed on a file system without locks: two concurrent calls are rare, and each step is safe by itself.
  if (errno != EWOULDBLOCK) return fd;
  return Error{fmt::format("another fulldeck is changing files in {} at this moment; try again", Named(folder))};
}

}  // namespace

struct PatchedFile::Note {
  Sum before, after;
  TraceWhen when = TraceWhen::kOnRequest;
};

struct PatchedFile::Seen {
  std::string text;  // of FILE
  std::optional<Note> note;
  PatchStatus status;
};

PatchedFile::PatchedFile(std::string path, Step step) : path_(std::move(path)), step_(std::move(step)) {
  char* real = realpath(path_.c_str(), nullptr);
  if (real != nullptr) path_ = real;
  std::free(real);
  const std::size_t slash = path_.rfind('/');
  folder_ = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
}

// The content of FILE decides: equal to the note's `after`, it is patched; equal to `before`, a patch or restore was
// interrupted; anything else was written by another program.
Result<PatchedFile::Seen> PatchedFile::Inspect() const {
  auto text = base::ReadWholeFile(path_, kLargestFile);
  if (!text) return text.error();
  Seen seen;
  seen.text = std::move(*text);
  const std::string note_path = path_ + ".fulldeck-patch";
  if (Exists(note_path)) {
    const auto words = base::ReadWholeFile(note_path, kLargestFile);
    if (!words) return words.error();
    const auto lines = base::Split(*words, '\n');
    const auto field = [&](std::size_t line, std::string_view name) {
      return lines.size() > line && lines[line].starts_with(name) ? lines[line].substr(name.size())
                                                                  : std::string_view();
    };
    const auto before = ParseSum(field(1, "before "));
    const auto after = ParseSum(field(2, "after "));
    if (lines[0] != kNoteTitle || !before || !after) {
      return Error{
          fmt::format("{} is damaged or of another version of fulldeck; it was not touched. Install the package "
                      "anew (pip install --force-reinstall --no-deps) and remove that file",
                      Named(note_path))};
    }
    seen.note = Note{*before, *after, field(3, "trace ") == "always" ? TraceWhen::kAlways : TraceWhen::kOnRequest};
  }
  const bool beside = Exists(path_ + ".fulldeck-original");
  const bool half_written = Exists(path_ + ".fulldeck-new");
  const Sum now = SumOf(seen.text);
  PatchStatus& status = seen.status;
  status.leftovers = half_written;
  if (seen.note && now == seen.note->after) {
    status.state = PatchState::kPatched;
    status.when = seen.note->when;
  } else if (seen.note && now == seen.note->before) {
    status.leftovers = true;
  } else if (seen.note) {
    status.state = PatchState::kChangedMeanwhile;
  } else {
    status.state = HasLines(seen.text) ? PatchState::kLinesWithoutNote : PatchState::kNotPatched;
    status.leftovers = half_written || beside;
  }
  return seen;
}

Result<PatchStatus> PatchedFile::Status() const {
  const auto seen = Inspect();
  if (!seen) return seen.error();
  return seen->status;
}

std::optional<std::string> PatchedFile::WhyNotWritable() const {
  struct stat facts {};
  if (stat(path_.c_str(), &facts) != 0) return ErrnoError("cannot look at " + Named(path_)).message;
  constexpr char kOtherWay[] = "Or use `fulldeck run --trace-ddp`, which changes no file";
  if (access(folder_.c_str(), W_OK | X_OK) != 0) {
    const int why = errno;
    if (why == EROFS) return fmt::format("{} is on a file system that is read-only. {}", Named(folder_), kOtherWay);
    return fmt::format("{} may not be written by you (user {}; the file belongs to user {}): do it as that user. {}",
                       Named(folder_), geteuid(), facts.st_uid, kOtherWay);
  }
  if (facts.st_uid != geteuid() && geteuid() != 0) {
    return fmt::format(
        "{} belongs to user {}, and you are user {}: replacing it would change its owner. Do it as that "
        "user. {}",
        Named(path_), facts.st_uid, geteuid(), kOtherWay);
  }
  return std::nullopt;
}

Result<void> PatchedFile::Before(const char* name) const {
  if (step_ && !step_(name)) return Error{std::string("interrupted before: ") + name};
  return {};
}

Result<void> PatchedFile::WriteNote(const Note& note) const {
  const std::string text = fmt::format("{}\nbefore {}\nafter {}\ntrace {}\n", kNoteTitle, FormatSum(note.before),
                                       FormatSum(note.after), note.when == TraceWhen::kAlways ? "always" : "asked");
  const std::string scratch = path_ + ".fulldeck-patch.new";
  if (const auto may = Before("write the note"); !may) return may;
  if (const auto written = WriteSynced(scratch, text, path_); !written) return written;
  if (const auto may = Before("name the note"); !may) return may;
  if (rename(scratch.c_str(), (path_ + ".fulldeck-patch").c_str()) != 0) return ErrnoError("cannot write the note");
  return SyncFolder(folder_);
}

Result<void> PatchedFile::KeepOriginal(const std::string& original) const {
  const std::string kept = path_ + ".fulldeck-original";
  if (const auto may = Before("clear an older original"); !may) return may;
  if (unlink(kept.c_str()) != 0 && errno != ENOENT) return ErrnoError("cannot replace " + Named(kept));
  if (const auto may = Before("keep the original"); !may) return may;
  if (link(path_.c_str(), kept.c_str()) != 0) {
    if (const auto copied = WriteSynced(kept, original, path_); !copied) return copied;
  }
  return SyncFolder(folder_);
}

Result<void> PatchedFile::Replace(const std::string& text) const {
  if (const auto may = Before("look once more"); !may) return may;
  const auto now = base::ReadWholeFile(path_, kLargestFile);
  if (!now) return now.error();
  if (*now != text) return Error{Named(path_) + " was changed by somebody else just now, and was left alone"};
  if (const auto may = Before("replace the file"); !may) return may;
  if (rename((path_ + ".fulldeck-new").c_str(), path_.c_str()) != 0)
    return ErrnoError("cannot replace " + Named(path_));
  return SyncFolder(folder_);
}

Result<void> PatchedFile::RemoveTraces() const {
  // The note goes last: as long as it exists, an interruption can be distinguished from a file that was never
  // patched.
  for (const char* ending : {".fulldeck-new", ".fulldeck-patch.new", ".fulldeck-original", ".fulldeck-patch"}) {
    if (const auto may = Before(ending); !may) return may;
    if (unlink((path_ + ending).c_str()) != 0 && errno != ENOENT)
      return ErrnoError("cannot remove " + Named(path_ + ending));
  }
  return SyncFolder(folder_);
}

Result<bool> PatchedFile::Patch(TraceWhen when) {
  if (const auto why = WhyNotWritable()) return Error{*why};
  const auto lock = Lock(folder_);
  if (!lock) return lock.error();
  auto seen = Inspect();
  if (!seen) return seen.error();
  if (seen->status.state == PatchState::kPatched && seen->status.when == when) return false;
  if (seen->status.state == PatchState::kPatched) {
    // Go through the original, so that there is never a third content of the file to recognize. The lock is held
    // until `lock` is destroyed.
    const auto original = WithoutLines(seen->text);
    if (!original || !(SumOf(*original) == seen->note->before)) {
      return Error{Named(path_) + ": taking the lines out does not give the original. Use --restore first"};
    }
    if (const auto written = WriteSynced(path_ + ".fulldeck-new", *original, path_); !written) return written.error();
    if (const auto replaced = Replace(seen->text); !replaced) return replaced.error();
    seen = Inspect();
    if (!seen) return seen.error();
  }
  if (seen->status.state == PatchState::kChangedMeanwhile && !HasLines(seen->text)) {
    // Reinstalled after a patch: the note describes a file that no longer exists.
    if (const auto removed = RemoveTraces(); !removed) return removed.error();
  } else if (seen->status.state != PatchState::kNotPatched) {
    return Error{
        fmt::format("{} was changed since fulldeck patched it, and was left alone. Install the package anew (pip "
                    "install --force-reinstall --no-deps mmengine), then patch again",
                    Named(path_))};
  }
  const auto patched = WithLines(seen->text, when);
  if (!patched) {
    return Error{fmt::format("{}: {}. The lines cannot be put in by a program; `fulldeck run --trace-ddp` needs none",
                             Named(path_), patched.error().message)};
  }
  if (const auto may = Before("write the new file"); !may) return may.error();
  if (const auto done = WriteSynced(path_ + ".fulldeck-new", *patched, path_); !done) return done.error();
  if (const auto done = WriteNote({SumOf(seen->text), SumOf(*patched), when}); !done) return done.error();
  if (const auto done = KeepOriginal(seen->text); !done) return done.error();
  if (const auto done = Replace(seen->text); !done) return done.error();
  return true;
}

Result<bool> PatchedFile::Restore() {
  if (const auto why = WhyNotWritable()) return Error{*why};
  const auto lock = Lock(folder_);
  if (!lock) return lock.error();
  const auto seen = Inspect();
  if (!seen) return seen.error();
  switch (seen->status.state) {
    case PatchState::kNotPatched:
      if (seen->status.leftovers) {
        if (const auto removed = RemoveTraces(); !removed) return removed.error();
      }
      return false;
    case PatchState::kLinesWithoutNote:
    case PatchState::kChangedMeanwhile:
      if (seen->status.state == PatchState::kChangedMeanwhile && !HasLines(seen->text)) {
        return Error{
            fmt::format("{} is neither the file that fulldeck patched nor what it made of it, and has none of its "
                        "lines: it was installed anew or restored by hand. It was left alone; {} has the file as "
                        "it was before",
                        Named(path_), Named(path_ + ".fulldeck-original"))};
      }
      return Error{
          fmt::format("{} was changed since fulldeck patched it, and was left alone: giving the old one back would "
                      "lose that change. {} has the file as it was; or install the package anew (pip install "
                      "--force-reinstall --no-deps mmengine)",
                      Named(path_), Named(path_ + ".fulldeck-original"))};
    case PatchState::kPatched:
      break;
  }
  const std::string kept = path_ + ".fulldeck-original";
  const auto original = base::ReadWholeFile(kept, kLargestFile);
  if (original && SumOf(*original) == seen->note->before) {
    if (const auto may = Before("give the original back"); !may) return may.error();
    if (rename(kept.c_str(), path_.c_str()) != 0) return ErrnoError("cannot replace " + Named(path_));
    if (const auto synced = SyncFolder(folder_); !synced) return synced.error();
  } else {
    // The kept file is missing or damaged. Without the inserted lines, the file must match the original's checksum.
    const auto made = WithoutLines(seen->text);
    if (!made || !(SumOf(*made) == seen->note->before)) {
      return Error{
          fmt::format("{} is gone or damaged, and the original cannot be made again. Install the package anew (pip "
                      "install --force-reinstall --no-deps mmengine)",
                      Named(kept))};
    }
    if (const auto may = Before("write the original anew"); !may) return may.error();
    if (const auto written = WriteSynced(path_ + ".fulldeck-new", *made, path_); !written) return written.error();
    if (const auto replaced = Replace(seen->text); !replaced) return replaced.error();
  }
  if (const auto removed = RemoveTraces(); !removed) return removed.error();
  return true;
}

}  // namespace fulldeck::patch
