// One spelling for PCI addresses, so that the addresses of tools, libraries and sysfs can be compared.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fulldeck::device {

// "00:3d:0.0", "00000000:3D:00.0", "3d:00.0" and "0000:3d:00.0" all become "0000:3d:00.0". nullopt for anything else.
std::optional<std::string> NormalPciAddress(std::string_view text);

}  // namespace fulldeck::device
