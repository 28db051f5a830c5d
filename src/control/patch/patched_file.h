// One source file of another package that gets fulldeck's lines inserted and can be restored byte by byte.
//
// Next to FILE there may be
//   FILE.fulldeck-original   the original file: the same inode if the file system supports it, otherwise a copy
//   FILE.fulldeck-patch      a note: checksum and length of the file before and after
//   FILE.fulldeck-new        the file that is being written; never read back
// The order is: write and sync the new file, write the note, keep the original, then one rename. So FILE is complete
// at every moment, and is either the old or the new one. After an interruption the next call can tell which, and both
// Patch and Restore continue from there. Of two concurrent calls the second one is rejected (a lock on the folder).
//
// Only the content of FILE decides, never its timestamp. A file that matches neither the state before nor the state
// after was changed by another program, and is left unchanged.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "patch/inserted_lines.h"

namespace fulldeck::patch {

enum class PatchState {
  kNotPatched,
  kPatched,
  kChangedMeanwhile,  // patched once, then changed by another program or reinstalled
  kLinesWithoutNote,  // the inserted lines are in it, but the note is missing
};

struct PatchStatus {
  PatchState state = PatchState::kNotPatched;
  std::optional<TraceWhen> when;  // of kPatched
  bool leftovers = false;         // an interrupted call left files next to it; the next Patch or Restore removes them
};

class PatchedFile {
 public:
  // Called with its name before each step that changes the disk; if it returns false, the call ends there as after a
  // power failure. For tests.
  using Step = std::function<bool(const char* name)>;

  // If `path` is a link, its target is used.
  explicit PatchedFile(std::string path, Step step = nullptr);

  base::Result<PatchStatus> Status() const;

  // Inserts the lines. Returns whether the file was changed: false if they are already inserted. Replaces lines of
  // the other TraceWhen.
  base::Result<bool> Patch(TraceWhen when);

  // Restores the original file. Returns whether it was changed: false if there was nothing to restore.
  base::Result<bool> Restore();

  // Why the file cannot be replaced, as a message with a fix; nullopt if it can. Patch and Restore check this.
  std::optional<std::string> WhyNotWritable() const;

  const std::string& path() const { return path_; }

 private:
  struct Note;
  struct Seen;

  base::Result<Seen> Inspect() const;
  base::Result<void> Before(const char* name) const;
  base::Result<void> WriteNote(const Note& note) const;
  base::Result<void> KeepOriginal(const std::string& original) const;
  base::Result<void> Replace(const std::string& text) const;
  base::Result<void> RemoveTraces() const;

  std::string path_;
  std::string folder_;
  Step step_;
};

}  // namespace fulldeck::patch
