#include <map>

#include "base/text.h"
#include "doctor/network/network_checks.h"

namespace fulldeck::doctor {
namespace {

std::optional<int> Width(const std::optional<std::string>& line) {
  return line ? base::ParseInteger<int>(*line) : std::nullopt;
}

std::string Folder(const device::Card& card) {
  return "/sys/bus/pci/devices/" + *card.pci_address;
}

// The variable of each backend that disables card-to-card copies.
std::string_view OffSwitch(std::string_view backend) {
  return backend == "nccl" ? "NCCL_P2P_DISABLE" : "";
}

}  // namespace

std::vector<Finding> CheckCardLinks(const MachineUnderTest& machine) {
  std::vector<Finding> findings;
  int measured = 0;
  std::vector<std::string> unknown;
  for (const device::Card* card : machine.inventory.Cards()) {
    if (card->simulated) continue;
    const auto read = [&](const char* file) {
      return card->pci_address ? machine.root.ReadLine(Folder(*card) + file) : std::nullopt;
    };
    const auto width = Width(read("/current_link_width"));
    const auto widest = Width(read("/max_link_width"));
    if (!width || !widest || *width == 0) {
      unknown.push_back(device::NameOf(*card));
      continue;
    }
    ++measured;
    // An idle card lowers the speed of its link and raises it under load; the number of lanes does not change.
    if (*width < *widest) {
      findings.push_back(
          Warn(Bilingual("{} uses {} of its {} PCIe lanes: copies take {:.0f} times as long",
                         "{} 只用了 {} / {} 条 PCIe 通道：拷贝耗时为 {:.0f} 倍", device::NameOf(*card), *width, *widest,
                         static_cast<double>(*widest) / *width),
               Bilingual("seat the card and its riser again, or move it to a wider slot (lspci -vv -s {})",
                         "重新插好卡和转接板，或换到更宽的插槽（lspci -vv -s {}）", *card->pci_address),
               "", {{"card", device::NameOf(*card)}, {"lanes", std::to_string(*width)}}));
    }
  }
  if (!unknown.empty()) {
    findings.push_back(CannotTell(Bilingual("the kernel does not tell the PCIe link of {}",
                                            "内核没有给出 {} 的 PCIe 链路", base::Join(unknown, ", ")),
                                  Bilingual("lspci -vv as root", "以 root 执行 lspci -vv")));
  }
  if (findings.empty() && measured > 0) {
    findings.push_back(
        Ok({base::Counted(static_cast<std::uint64_t>(measured), "card") + ", each on all of its PCIe lanes",
            fmt::format("{} 张卡均使用全部 PCIe 通道", measured)}));
  }
  return findings;
}

std::vector<Finding> CheckPeerToPeer(const MachineUnderTest& machine) {
  std::vector<const device::Card*> cards;
  for (const device::Card* card : machine.inventory.Cards()) {
    if (!card->simulated && card->pci_address) cards.push_back(card);
  }
  if (cards.size() < 2) return {};
  std::map<int, int> by_node;
  std::vector<std::string> translated;
  int known = 0;
  for (const device::Card* card : cards) {
    ++by_node[card->numa_node.value_or(0)];
    const auto type = machine.root.ReadLine(Folder(*card) + "/iommu_group/type");
    if (type) ++known;
    // "identity" is passthrough; "DMA" and "DMA-FQ" are translated.
    if (type && type->starts_with("DMA")) translated.push_back(device::NameOf(*card));
  }
  std::vector<std::string> nodes;
  for (const auto& [node, count] : by_node) nodes.push_back(fmt::format("{} on NUMA node {}", count, node));
  const std::string_view off = OffSwitch(cards.front()->collective_backend);
  const Figures figures = {{"nodes", std::to_string(by_node.size())},
                           {"translated", std::to_string(translated.size())}};
  const bool is_off = !off.empty() && machine.environment.Get(off) == "1";
  if (!translated.empty() && !is_off) {
    return {Warn(
        Bilingual("the IOMMU translates the addresses of {} cards ({}): copies from card to card may hang or be slow",
                  "IOMMU 会转换 {} 张卡的地址（{}）：卡间直接拷贝可能挂起或变慢", translated.size(),
                  base::Join(nodes, ", ")),
        off.empty()
            ? Bilingual(
                  "on the host: iommu=pt on the kernel's command line; no variable of {} is known that turns such "
                  "copies off",
                  "宿主机内核参数加 iommu=pt；{} 没有已知的关闭变量", cards.front()->collective_backend)
            : Bilingual("on the host: iommu=pt on the kernel's command line; if a run hangs in its first "
                        "collective: export {}=1",
                        "宿主机内核参数加 iommu=pt；若运行挂在第一次集合通信：export {}=1", off),
        "I3", figures)};
  }
  if (known == 0 && !is_off && !machine.root.List("/sys/kernel/iommu_groups").empty()) {
    return {CannotTell(Bilingual("{} cards ({}); how the IOMMU treats them is not told",
                                 "{} 张卡（{}）；无法得知 IOMMU 如何处理它们", cards.size(), base::Join(nodes, ", ")),
                       Bilingual("dmesg | grep -i iommu", "dmesg | grep -i iommu"), "I3", figures)};
  }
  return {Ok(Bilingual("{} cards ({}), {}", "{} 张卡（{}），{}", cards.size(), base::Join(nodes, ", "),
                       is_off ? fmt::format("{}=1 is set", off) : std::string("IOMMU: passed through or off")),
             figures)};
}

}  // namespace fulldeck::doctor
