// Folders for data of one user: the state of simulated cards, the registry of runs. Such a folder may be in /tmp, so it
// is used only if no other user can have planted it or can change its contents.
#pragma once

#include <string>
#include <string_view>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::wire {

// `folder`, unless another user owns that name; then the first folder of this user named `folder`.XXXXXX, created if
// none exists.
std::string OwnedFolder(const std::string& folder);

// The user's folder if no variable names one: $XDG_RUNTIME_DIR/fulldeck if that is writable, otherwise OwnedFolder of
// /tmp/fulldeck-UID.
std::string RuntimeFolder(const base::Environment& environment);

// Fails unless `folder` is a folder (not a symbolic link) of this user that nobody else can write to. The message tells
// the user to set `variable` to another folder. If `folder` does not exist, system_error is ENOENT.
base::Result<void> CheckPrivateFolder(const std::string& folder, std::string_view variable);

// The same, but creates the folder (not its parents) if it does not exist.
base::Result<void> MakePrivateFolder(const std::string& folder, std::string_view variable);

}  // namespace fulldeck::wire
