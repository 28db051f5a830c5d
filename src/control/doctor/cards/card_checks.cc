// The group "cards", first half: facts from the inventory. The second half, card_deep_checks.cc, uses the cards.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "device/inventory.h"
#include "doctor/cards/card_deep_checks.h"
#include "doctor/cards/card_findings.h"
#include "doctor/check.h"

namespace fulldeck::doctor {
namespace {

using device::Card;

constexpr double kHot = 85;
constexpr double kTooHot = 95;
// A driver uses some memory itself; beyond this, other work is on the card.
constexpr std::uint64_t kHeldByOthers = std::uint64_t{1} << 30;
constexpr double kBusyBeforeTheRun = 10;

Findings CheckPresent(const MachineUnderTest& machine) {
  Findings findings;
  for (const device::VendorReport& vendor : machine.inventory.vendors) {
    for (const std::string& failure : vendor.failures) {
      findings.push_back(
          MakeFinding(vendor.cards.empty() ? Verdict::kFail : Verdict::kWarn,
                      {vendor.title + ": " + failure, vendor.title + "：" + failure},
                      {"Install the driver and its library from one release; in a container, give it the device nodes "
                       "and the driver's folder.",
                       "从同一版本安装驱动及其库；在容器中要挂载设备节点和驱动目录。"},
                      "D2"));
    }
  }
  const auto cards = machine.inventory.Cards();
  for (const Card* card : cards) {
    const auto needs_driver = std::find_if(card->notes.begin(), card->notes.end(), [](const std::string& note) {
      return note.find("driver is loaded") != std::string::npos;
    });
    if (!card->present) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {Title(*card) + " was there and no longer answers: it has fallen off the bus.",
           Title(*card) + " 曾经存在，现在不再应答：已从总线掉线。"},
          {"Look at dmesg for the bus error, reset the card or power the machine off and on; until then leave it out: "
           "fulldeck run --devices.",
           "用 dmesg 查看总线错误，复位该卡或断电重启；在此之前用 fulldeck run --devices 排除它。"},
          "", {{"card", device::NameOf(*card)}}));
    } else if (needs_driver != card->notes.end()) {
      findings.push_back(MakeFinding(Verdict::kFail,
                                     {Title(*card) + ": " + *needs_driver, Title(*card) + "：未加载驱动，无法使用。"},
                                     {"Load or install the vendor's driver, then look again: fulldeck devices.",
                                      "加载或安装厂商驱动，然后再看：fulldeck devices。"},
                                     "D2", {{"card", device::NameOf(*card)}}));
    }
  }
  if (!findings.empty()) return findings;
  if (cards.empty()) {
    return {MakeFinding(
        Verdict::kOk,
        {"No accelerator: PCI functions, device nodes and vendor libraries were looked for. Runs use the processor.",
         "没有加速卡：已查看 PCI 设备、设备节点和厂商库。训练将使用处理器。"})};
  }
  std::map<std::string, int> by_model;
  for (const Card* card : cards) ++by_model[card->kind + " " + card->model.value_or("card of unknown model")];
  std::vector<std::string> counts;
  for (const auto& [model, count] : by_model) counts.push_back(std::to_string(count) + " x " + model);
  const std::string mark = machine.inventory.simulated ? " (simulated)" : "";
  return {
      MakeFinding(Verdict::kOk,
                  {base::Join(counts, ", ") + mark + ": all answer.", base::Join(counts, "，") + mark + "：全部应答。"},
                  {}, "", {{"cards", std::to_string(cards.size())}})};
}

Findings CheckIdentity(const MachineUnderTest& machine) {
  const auto cards = machine.inventory.Cards();
  if (cards.empty()) return NoCard();
  std::map<std::string, std::vector<const Card*>> by_identity;
  PerCard result;
  for (const Card* card : cards) {
    const auto identity = card->serial ? card->serial : card->uuid ? card->uuid : card->pci_address;
    if (!identity) {
      result.Unknown(*card);
    } else {
      by_identity[*identity].push_back(card);
    }
  }
  for (const auto& [identity, holders] : by_identity) {
    if (holders.size() == 1) {
      result.Good(*holders.front());
      continue;
    }
    result.Bad(
        MakeFinding(Verdict::kFail,
                    {Names(holders) + " all say that they are " + identity + ": they are one card under several names.",
                     Names(holders) + " 都自称是 " + identity + "：它们是同一张卡的多个名字。"},
                    {"Do not start a rank for each of them. Check the visible-device list and the container's devices.",
                     "不要为它们各启动一个进程；检查可见设备列表和容器的设备。"},
                    "B8"));
  }
  return result.Done(
      {"each is a card of its own, by serial number, UUID or PCI address", "序列号、UUID 或 PCI 地址各不相同"},
      {"neither serial number nor UUID nor PCI address is told", "没有序列号、UUID 或 PCI 地址"},
      {"Install the vendor's management library, then: fulldeck devices --json.",
       "安装厂商的管理库，然后：fulldeck devices --json。"});
}

Findings CheckVisible(const MachineUnderTest& machine) {
  Findings findings;
  std::vector<const Card*> visible;
  std::vector<const Card*> hidden;
  std::string lists;
  for (const device::VendorReport& vendor : machine.inventory.vendors) {
    if (vendor.bad_visibility) {
      findings.push_back(MakeFinding(
          Verdict::kFail, {vendor.title + ": " + *vendor.bad_visibility, vendor.title + "：" + *vendor.bad_visibility},
          {"Correct the variable, or unset it to use every card.", "改正该变量，或取消设置以使用全部卡。"}, "B9"));
    }
    if (vendor.visibility) lists += (lists.empty() ? "" : ", ") + *vendor.visibility;
    for (const Card& card : vendor.cards) (card.visible ? visible : hidden).push_back(&card);
  }
  if (!findings.empty()) return findings;
  if (visible.empty() && hidden.empty()) return NoCard();
  const Figures figures = {{"visible", std::to_string(visible.size())}, {"hidden", std::to_string(hidden.size())}};
  if (visible.empty()) {
    return {MakeFinding(
        Verdict::kFail,
        {fmt::format("{} hides every card: torch will see none of {}.", lists, base::Counted(hidden.size(), "card")),
         fmt::format("{} 隐藏了所有卡：torch 将看不到 {} 张卡中的任何一张。", lists, hidden.size())},
        {"Unset the variable or list the cards that the run may use.", "取消该变量，或列出可以使用的卡。"}, "I11",
        figures)};
  }
  if (machine.ranks > static_cast<int>(visible.size())) {
    return {MakeFinding(
        Verdict::kFail,
        {fmt::format("{} ranks and {} visible{}: ranks would share a card.", machine.ranks,
                     base::Counted(visible.size(), "card"), lists.empty() ? "" : " (" + lists + ")"),
         fmt::format("{} 个进程，只有 {} 张可见卡{}：会有进程共用一张卡。", machine.ranks, visible.size(),
                     lists.empty() ? "" : "（" + lists + "）")},
        {"Start as many ranks as there are cards, or make the others visible.", "进程数应等于卡数，或让其余的卡可见。"},
        "B8", figures)};
  }
  if (hidden.empty()) {
    return {MakeFinding(
        Verdict::kOk,
        {base::Counted(visible.size(), "card") + ", all visible" + (lists.empty() ? "." : " (" + lists + ")."),
         std::to_string(visible.size()) + " 张卡全部可见" + (lists.empty() ? "。" : "（" + lists + "）。")},
        {}, "", figures)};
  }
  return {MakeFinding(Verdict::kOk,
                      {fmt::format("{}: {} visible, {} hidden.", lists, Names(visible), Names(hidden)),
                       fmt::format("{}：可见 {}，隐藏 {}。", lists, Names(visible), Names(hidden))},
                      {}, "", figures)};
}

Findings CheckTemperature(const MachineUnderTest& machine) {
  if (machine.inventory.Cards().empty()) return NoCard();
  PerCard result;
  double highest = 0;
  for (const Card* card : machine.inventory.Cards()) {
    const auto& degrees = card->telemetry.temperature_celsius;
    if (!degrees) {
      result.Unknown(*card);
    } else if (*degrees >= kHot) {
      const bool too_hot = *degrees >= kTooHot;
      result.Bad(
          MakeFinding(too_hot ? Verdict::kFail : Verdict::kWarn,
                      {fmt::format("{} is at {:.0f} °C{}.", Title(*card), *degrees,
                                   too_hot ? " and slows itself down or stops" : ""),
                       fmt::format("{} 温度 {:.0f} °C{}。", Title(*card), *degrees, too_hot ? "，会降频或停机" : "")},
                      {"Look at fans, airflow and what runs on it (fulldeck devices) before a long run.",
                       "长时间训练前检查风扇、风道以及卡上运行的程序（fulldeck devices）。"},
                      "", {{"card", device::NameOf(*card)}, {"celsius", fmt::format("{:.0f}", *degrees)}}));
    } else {
      highest = std::max(highest, *degrees);
      result.Good(*card);
    }
  }
  return result.Done({fmt::format("at most {:.0f} °C", highest), fmt::format("最高 {:.0f} °C", highest)},
                     {"the temperature is not told", "没有温度数据"},
                     {"Install the vendor's management library or tool; fulldeck devices says what is missing.",
                      "安装厂商的管理库或工具；fulldeck devices 会说明缺什么。"});
}

// What a vendor's state string says about health. Performance states (P0, Sleep) say nothing about it.
std::optional<Verdict> HealthIn(const std::string& state) {
  for (const char* word : {"OK", "Healthy", "Good"}) {
    if (state == word) return Verdict::kOk;
  }
  for (const char* word : {"Warning", "Minor"}) {
    if (state == word) return Verdict::kWarn;
  }
  for (const char* word : {"Alarm", "Critical", "Fault", "Error", "Lost", "Major", "Offline"}) {
    if (state == word) return Verdict::kFail;
  }
  return std::nullopt;
}

Findings CheckHealth(const MachineUnderTest& machine) {
  if (machine.inventory.Cards().empty()) return NoCard();
  PerCard result;
  for (const Card* card : machine.inventory.Cards()) {
    const auto health = card->telemetry.state ? HealthIn(*card->telemetry.state) : std::nullopt;
    if (!health) {
      result.Unknown(*card);
    } else if (*health == Verdict::kOk) {
      result.Good(*card);
    } else {
      result.Bad(MakeFinding(
          *health,
          {Title(*card) + ": its driver calls it \"" + *card->telemetry.state + "\".",
           Title(*card) + "：驱动报告状态为“" + *card->telemetry.state + "”。"},
          {"See the driver's log and tool for the reason; leave the card out until it is well: fulldeck run --devices.",
           "用驱动日志和工具查看原因；恢复前用 fulldeck run --devices 排除它。"},
          "I16", {{"card", device::NameOf(*card)}}));
    }
  }
  return result.Done({"its driver calls it well", "驱动报告正常"},
                     {"its driver has no word for its health", "驱动没有健康状态"},
                     {"fulldeck doctor --deep makes it work and, on NVIDIA cards, asks for memory errors.",
                      "fulldeck doctor --deep 会实际使用该卡，并查询 NVIDIA 卡的内存错误。"});
}

Findings CheckMemoryFree(const MachineUnderTest& machine) {
  if (machine.inventory.Cards().empty()) return NoCard();
  PerCard result;
  for (const Card* card : machine.inventory.Cards()) {
    if (!card->present) continue;
    const auto& used = card->telemetry.memory_used_bytes;
    if (!used) {
      result.Unknown(*card);
      continue;
    }
    // For a small card the limit is a twentieth of its memory.
    const std::uint64_t line = std::min(kHeldByOthers, card->memory_total_bytes.value_or(kHeldByOthers * 20) / 20);
    if (*used <= line) {
      result.Good(*card);
      continue;
    }
    std::string who;
    if (card->telemetry.holders) {
      for (const device::Holder& holder : *card->telemetry.holders) {
        who +=
            fmt::format("{}pid {}{}{}", who.empty() ? ": " : "; ", holder.pid, holder.user ? " of " + *holder.user : "",
                        holder.command ? " (" + base::Printable(holder.command->substr(0, 80)) + ")" : "");
      }
    }
    result.Bad(MakeFinding(
        Verdict::kWarn,
        {fmt::format("{}: {} of {} is held by others{}.", Title(*card), base::FormatByteSize(*used),
                     card->memory_total_bytes ? base::FormatByteSize(*card->memory_total_bytes) : "unknown", who),
         fmt::format("{}：{} 内存已被占用（共 {}）{}。", Title(*card), base::FormatByteSize(*used),
                     card->memory_total_bytes ? base::FormatByteSize(*card->memory_total_bytes) : "未知", who)},
        {fmt::format("A run may run out of memory here. Let them end, or stop those that are yours: fulldeck stop "
                     "--holders {}.",
                     card->index),
         fmt::format("训练可能内存不足。等待其结束，或停止自己的进程：fulldeck stop --holders {}。", card->index)},
        "C8", {{"card", device::NameOf(*card)}, {"bytes_held", std::to_string(*used)}}));
  }
  return result.Done({"its memory is free", "内存空闲"}, {"how much memory is held is not told", "没有内存占用数据"},
                     {"Install the vendor's management library or tool; fulldeck devices says what is missing.",
                      "安装厂商的管理库或工具；fulldeck devices 会说明缺什么。"});
}

Findings CheckIdle(const MachineUnderTest& machine) {
  if (machine.inventory.Cards().empty()) return NoCard();
  PerCard result;
  for (const Card* card : machine.inventory.Cards()) {
    if (!card->present) continue;
    const auto& percent = card->telemetry.utilization_percent;
    if (!percent) {
      result.Unknown(*card);
    } else if (*percent > kBusyBeforeTheRun) {
      result.Bad(MakeFinding(
          Verdict::kWarn,
          {fmt::format("{} is at {:.0f} %, before anything of this run has begun: somebody else computes on it.",
                       Title(*card), *percent),
           fmt::format("{} 在训练开始前利用率已为 {:.0f} %：有其他程序在使用。", Title(*card), *percent)},
          {fmt::format("See who: fulldeck devices. Yours: fulldeck stop --holders {}. Else choose other cards: "
                       "fulldeck run --devices.",
                       card->index),
           fmt::format(
               "查看是谁：fulldeck devices；自己的：fulldeck stop --holders {}；否则选其他卡：fulldeck run --devices。",
               card->index)},
          "C8", {{"card", device::NameOf(*card)}, {"percent", fmt::format("{:.0f}", *percent)}}));
    } else {
      result.Good(*card);
    }
  }
  return result.Done({"idle, as it should be before a run", "空闲，训练前应当如此"},
                     {"utilisation is not told", "没有利用率数据"},
                     {"Install the vendor's management library or tool; without it nothing can show that a card works.",
                      "安装厂商的管理库或工具；否则无法看出卡是否在工作。"});
}

}  // namespace

std::vector<Check> CardChecks() {
  const auto check = [](std::string_view id, bool deep, Findings (*run)(const MachineUnderTest&)) {
    Check made{id, Group::kCards, run, deep};
    // All of them use the same probe result, which may take two measurements.
    made.deep_limit = deep ? std::chrono::minutes(10) : made.deep_limit;
    made.family = deep ? "card-proof" : "";
    return made;
  };
  return {
      check("card-present", false, CheckPresent),
      check("card-identity", false, CheckIdentity),
      check("card-visible", false, CheckVisible),
      check("card-temperature", false, CheckTemperature),
      check("card-health", false, CheckHealth),
      check("card-memory", false, CheckMemoryFree),
      check("card-idle", false, CheckIdle),
      check("card-proof", true, CheckProof),
      check("card-pace", true, CheckPace),
      check("card-telemetry", true, CheckTelemetry),
      check("card-memory-errors", true, CheckMemoryErrors),
  };
}

}  // namespace fulldeck::doctor
