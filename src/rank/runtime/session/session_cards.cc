#include "runtime/session/session_cards.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/text.h"

namespace fulldeck::runtime {

std::string CardClaim::ToText() const {
  const auto one_line = [](std::string text) {
    text.resize(std::min<std::size_t>(text.size(), 1024));
    return base::Printable(text);
  };
  return one_line(node) + "\n" + one_line(device) + "\n" + one_line(serial) + "\n" + one_line(visible);
}

CardClaim CardClaim::FromText(const std::string& text) {
  const auto lines = base::Split(text, '\n');
  CardClaim claim;
  if (lines.size() != 4) return claim;
  claim.node = lines[0];
  claim.device = lines[1];
  claim.serial = lines[2];
  claim.visible = lines[3];
  return claim;
}

std::string ThisNodeKey() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char network[128] = {};
  if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = '\0';
  return boot + " " + network;
}

std::string VisibleLists() {
  std::string text;
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TOPS_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"}) {
    if (const char* value = std::getenv(name)) text += std::string(name) + "=" + value + " ";
  }
  return text;
}

std::pair<int, int> FindSharedCard(const std::vector<CardClaim>& claims) {
  for (std::size_t i = 0; i < claims.size(); ++i) {
    for (std::size_t j = i + 1; j < claims.size(); ++j) {
      const CardClaim& a = claims[i];
      const CardClaim& b = claims[j];
      if (a.device.empty() || b.device.empty() || a.node != b.node) continue;
      const bool same = !a.serial.empty() && !b.serial.empty() ? a.serial == b.serial
                                                               : a.device == b.device && a.visible == b.visible;
      if (same) return {static_cast<int>(i), static_cast<int>(j)};
    }
  }
  return {-1, -1};
}

}  // namespace fulldeck::runtime
