// One source file of somebody else's install that gets lines of ours and is given back as it was, byte by byte.
//
// Beside FILE there may stand
//   FILE.fulldeck-original   the file as it was: the same inode where the file system can, else a copy
//   FILE.fulldeck-patch      a note: checksum and length of the file before and after
//   FILE.fulldeck-new        what is being written; never read back
// The order is: new file written and synced, note, original kept, then one rename. So at every moment FILE is whole,
// and is either the old one or the new one; whoever comes after an interruption can tell which, and both Patch and
// Restore go on from there. Two at once: the second is refused (a lock on the folder).
//
// What decides is the content of FILE, never its time. A file that is neither the one before nor the one after was
// changed by somebody else, and is not touched.
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
  kChangedMeanwhile,  // patched once, and then changed by somebody else, or installed anew
  kLinesWithoutNote,  // our lines are in it, and the note is gone
};

struct PatchStatus {
  PatchState state = PatchState::kNotPatched;
  std::optional<TraceWhen> when;  // of kPatched
  bool leftovers = false;         // an interrupted call left files beside it; the next Patch or Restore clears them
};

class PatchedFile {
 public:
  // Called before each step that changes the disk, with its name; false ends the call there as a power cut would. For
  // tests.
  using Step = std::function<bool(const char* name)>;

  // `path` may be a link: the file that it leads to is meant.
  explicit PatchedFile(std::string path, Step step = nullptr);

  base::Result<PatchStatus> Status() const;

  // Puts the lines in. Returns whether the file was changed: false when they are there already. Lines of the other kind
  // (TraceWhen) are replaced.
  base::Result<bool> Patch(TraceWhen when);

  // Gives the file back as it was. Returns whether it was changed: false when there was nothing to give back.
  base::Result<bool> Restore();

  // Why the file could not be replaced, in words and with what to do; nothing when it could. Asked by Patch and
  // Restore.
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
