// Which process listens on a port of this machine, for the message that reports the port as in use.
#pragma once

#include <optional>
#include <string>

#include "base/files/system_root.h"

namespace fulldeck::net {

// Example: "pid 4711 (python3 train.py)". nullopt if no process listens there, or if it belongs to another user,
// whose descriptors this process may not read. Reads /proc once: some milliseconds on a busy machine.
std::optional<std::string> ListenerOnPort(int port, const base::SystemRoot& root = base::SystemRoot());

}  // namespace fulldeck::net
