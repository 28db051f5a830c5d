// Who listens on a port of this host, for the message that says that it is taken.
#pragma once

#include <optional>
#include <string>

#include "base/files/system_root.h"

namespace fulldeck::net {

// "pid 4711 (python3 train.py)". Nothing when nobody listens there, or when it is a process of another user, which this
// one may not look into. Reads /proc once: some milliseconds on a busy machine.
std::optional<std::string> ListenerOnPort(int port, const base::SystemRoot& root = base::SystemRoot());

}  // namespace fulldeck::net
