// Folders in which fulldeck keeps what belongs to one user: the state of simulated cards, the registry of runs. Such a
// folder may stand in /tmp, so it is used only when nobody else can have planted or can change what lies in it.
#pragma once

#include <string>
#include <string_view>

#include "base/environment.h"
#include "base/result.h"

namespace fulldeck::wire {

// `folder`, unless another user has taken that name: then the first folder of this user named `folder`.XXXXXX, made
// if none exists.
std::string OwnedFolder(const std::string& folder);

// The user's folder where no variable names one: $XDG_RUNTIME_DIR/fulldeck when that can be written to, else
// OwnedFolder of /tmp/fulldeck-UID.
std::string RuntimeFolder(const base::Environment& environment);

// An error unless `folder` is a folder of this user that nobody else can write to; no symbolic link. `variable` is what
// the error tells to set to another folder. ENOENT stands in the error when there is none.
base::Result<void> CheckPrivateFolder(const std::string& folder, std::string_view variable);

// The same, after making it (not its parents) when it is not there.
base::Result<void> MakePrivateFolder(const std::string& folder, std::string_view variable);

}  // namespace fulldeck::wire
