#include "doctor/cards/card_deep_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "doctor/cards/card_findings.h"
#include "doctor/cards/card_proof.h"

namespace fulldeck::doctor {
namespace {

void JudgeMemoryErrors(const Card& card, const CardProof& proof, PerCard& result) {
  const base::BilingualText fix = {
      "Take the card out of the run (fulldeck run --devices), reset it (nvidia-smi -r), and have it replaced when it "
      "comes back.",
      "将该卡移出训练（fulldeck run --devices），复位（nvidia-smi -r），若再次出现则更换。"};
  const std::string name = device::NameOf(card);
  if (proof.ecc_uncorrected && *proof.ecc_uncorrected > 0) {
    result.Bad(
        MakeFinding(Verdict::kFail,
                    {fmt::format("{} has had {} since the driver was loaded.", Title(card),
                                 base::Counted(*proof.ecc_uncorrected, "uncorrected memory error")),
                     fmt::format("{} 自驱动加载以来有 {} 个不可纠正的内存错误。", Title(card), *proof.ecc_uncorrected)},
                    fix, "I16", {{"card", name}, {"ecc_uncorrected", std::to_string(*proof.ecc_uncorrected)}}));
  } else if (proof.rows_failed.value_or(false)) {
    result.Bad(MakeFinding(Verdict::kFail,
                           {Title(card) + " has no spare memory rows left for those that broke.",
                            Title(card) + " 已没有可替换坏行的备用内存行。"},
                           fix, "I16", {{"card", name}}));
  } else if (proof.rows_pending.value_or(false)) {
    result.Bad(MakeFinding(Verdict::kWarn,
                           {Title(card) + " waits for a reset to replace broken memory rows.",
                            Title(card) + " 等待复位以替换损坏的内存行。"},
                           fix, "I16", {{"card", name}}));
  } else {
    result.Good(card);
  }
}

std::string PerSecond(double bytes) {
  return fmt::format("{:.1f} GB/s", bytes / 1e9);
}

// "12.3 GB/s to it, 11.9 GB/s from it, 110.4 GiB of memory checked at 3210.0 GB/s"
base::BilingualText DescribeFigures(const CardProof& proof) {
  base::BilingualText message;
  const auto add = [&](const std::string& english, const std::string& chinese) {
    message.english += (message.english.empty() ? "" : ", ") + english;
    message.chinese += (message.chinese.empty() ? "" : "，") + chinese;
  };
  if (proof.to_card_bytes_per_second) {
    add(PerSecond(*proof.to_card_bytes_per_second) + " to it", "写入 " + PerSecond(*proof.to_card_bytes_per_second));
  }
  if (proof.from_card_bytes_per_second) {
    add(PerSecond(*proof.from_card_bytes_per_second) + " from it",
        "读出 " + PerSecond(*proof.from_card_bytes_per_second));
  }
  if (proof.memory_proved_bytes && proof.memory_bytes_per_second) {
    add(base::FormatByteSize(*proof.memory_proved_bytes) + " of memory checked at " +
            PerSecond(*proof.memory_bytes_per_second),
        "检查内存 " + base::FormatByteSize(*proof.memory_proved_bytes) + "（" +
            PerSecond(*proof.memory_bytes_per_second) + "）");
  }
  return message;
}

Figures FiguresOf(const Card& card, const CardProof& proof) {
  Figures figures = {{"card", device::NameOf(card)}, {"way", proof.way}};
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) figures.emplace_back(name, fmt::format("{:.6g}", *value));
  };
  add("to_card_bytes_per_second", proof.to_card_bytes_per_second);
  add("from_card_bytes_per_second", proof.from_card_bytes_per_second);
  add("memory_bytes_per_second", proof.memory_bytes_per_second);
  add("pace_seconds", proof.pace_seconds);
  if (proof.memory_proved_bytes)
    figures.emplace_back("memory_checked_bytes", std::to_string(*proof.memory_proved_bytes));
  if (proof.uuid) figures.emplace_back("uuid", *proof.uuid);
  if (proof.ecc) figures.emplace_back("ecc", *proof.ecc ? "on" : "off");
  return figures;
}

Finding JudgeProof(const Card& card, const CardProof& proof) {
  const base::BilingualText take_out = {
      "Take it out of the run (fulldeck run --devices) and reset it; a card that fails again belongs to its vendor.",
      "将其移出训练（fulldeck run --devices）并复位；再次失败请联系厂商。"};
  const Figures figures = FiguresOf(card, proof);
  const std::string title = Title(card);
  switch (proof.outcome) {
    case CardProof::Outcome::kSound: {
      if (proof.uuid && card.uuid && card.uuid->starts_with("GPU-") && *proof.uuid != *card.uuid) {
        return MakeFinding(
            Verdict::kFail,
            {fmt::format("{}: the card that answered is {}, and the inventory says {}.", title, *proof.uuid,
                         *card.uuid),
             fmt::format("{}：应答的卡是 {}，而清单中是 {}。", title, *proof.uuid, *card.uuid)},
            {"Check the visible-device list and CUDA_DEVICE_ORDER: numbers do not mean the same card everywhere.",
             "检查可见设备列表和 CUDA_DEVICE_ORDER：编号在各处不指同一张卡。"},
            "B9", figures);
      }
      const base::BilingualText measured = DescribeFigures(proof);
      return MakeFinding(Verdict::kOk,
                         {fmt::format("{}: allocated, copied, computed as the processor does, freed, through {}{}.",
                                      title, proof.way, measured.english.empty() ? "" : "; " + measured.english),
                          fmt::format("{}：经 {} 完成分配、复制、计算（与处理器一致）和释放{}。", title, proof.way,
                                      measured.chinese.empty() ? "" : "；" + measured.chinese)},
                         {}, "", figures);
    }
    case CardProof::Outcome::kWrong:
      return MakeFinding(
          Verdict::kFail,
          {fmt::format("{} computes or remembers wrongly (through {}): {}.", title, proof.way, proof.message),
           fmt::format("{} 计算或存储错误（经 {}）：{}。", title, proof.way, proof.message)},
          {"Nothing that it trains can be trusted. " + take_out.english, "它训练的结果都不可信。" + take_out.chinese},
          "I16", figures);
    case CardProof::Outcome::kRefused:
      return MakeFinding(Verdict::kFail,
                         {fmt::format("{} refuses at \"{}\": {}", title, proof.step, proof.message),
                          fmt::format("{} 在“{}”步骤出错：{}", title, proof.step, proof.message)},
                         take_out, "", figures);
    case CardProof::Outcome::kSilent:
      return MakeFinding(Verdict::kFail,
                         {fmt::format("{} hangs: its test {}, at \"{}\".", title, proof.message, proof.step),
                          fmt::format("{} 挂起：测试进程在“{}”步骤没有应答，已被终止。", title, proof.step)},
                         take_out, "", figures);
    case CardProof::Outcome::kDied:
      return MakeFinding(Verdict::kFail,
                         {fmt::format("{}: {}, at \"{}\".", title, proof.message, proof.step),
                          fmt::format("{}：使用它的进程在“{}”步骤崩溃：{}。", title, proof.step, proof.message)},
                         take_out, "", figures);
    case CardProof::Outcome::kNotDone:
      break;
  }
  return MakeFinding(
      card.present ? Verdict::kCannotTell : Verdict::kFail,
      {fmt::format("{} was not tried: {}.", title, proof.message),
       fmt::format("{} 未测试：{}。", title, proof.message)},
      card.present
          ? base::BilingualText{"Make the card visible, and name a Python whose torch has it: VIRTUAL_ENV or --python.",
                                "让该卡可见，并指定其 torch 支持该卡的 Python：VIRTUAL_ENV 或 --python。"}
          : take_out,
      "", {{"card", device::NameOf(card)}});
}

}  // namespace

Findings CheckProof(const MachineUnderTest& machine) {
  const auto cards = machine.inventory.Cards();
  if (cards.empty()) return NoCard();
  const auto proofs = ProofsOf(machine);
  Findings findings;
  for (std::size_t i = 0; i < cards.size(); ++i) findings.push_back(JudgeProof(*cards[i], (*proofs)[i]));
  return findings;
}

Findings CheckPace(const MachineUnderTest& machine) {
  const auto cards = machine.inventory.Cards();
  if (cards.empty()) return NoCard();
  const auto proofs = ProofsOf(machine);
  std::vector<std::string> models;
  std::map<std::string, int> measured;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    models.push_back(ModelOf(*cards[i]));
    if ((*proofs)[i].outcome == CardProof::Outcome::kSound && (*proofs)[i].pace_seconds) ++measured[models.back()];
  }
  struct FigureText {
    const char* figure;
    const char* english;
    const char* chinese;
  };
  constexpr FigureText kFigureTexts[] = {{"to_card", "copies to it run at", "写入速度"},
                                         {"from_card", "copies from it run at", "读出速度"},
                                         {"memory", "its own memory runs at", "显存速度"},
                                         {"pace", "the same computation takes", "同一计算耗时"}};
  std::map<std::size_t, Finding> slow;
  for (const SlowFigure& figure : FindSlow(models, *proofs)) {
    const FigureText& figure_text = *std::find_if(std::begin(kFigureTexts), std::end(kFigureTexts),
                                                  [&](const FigureText& w) { return figure.what == w.figure; });
    const auto value = [&](double number) {
      return figure.what == "pace" ? fmt::format("{:.3g} ms", number * 1e3) : PerSecond(number);
    };
    Finding& finding = slow[figure.card];
    const std::string title = Title(*cards[figure.card]);
    if (finding.evidence.english.empty()) {
      finding = MakeFinding(Verdict::kWarn, {title + " is far slower than the others", title + " 比其他卡慢得多"},
                            {"One slow card holds all ranks back. Compare its link (fulldeck devices --json: link), "
                             "temperature and power limit with "
                             "the others', and look for another process on it.",
                             "一张慢卡会拖慢所有进程。比较其链路（fulldeck devices --json 的 "
                             "link）、温度和功耗上限，并检查是否有其他进程。"},
                            "", {{"card", device::NameOf(*cards[figure.card])}});
    }
    finding.evidence.english += fmt::format("; {} {}, the others' median is {}", figure_text.english,
                                            value(figure.value), value(figure.median));
    finding.evidence.chinese +=
        fmt::format("；{} {}，其他卡的中位数为 {}", figure_text.chinese, value(figure.value), value(figure.median));
    finding.figures.emplace_back(figure.what, fmt::format("{:.6g}", figure.value));
    finding.figures.emplace_back(figure.what + "_median_of_others", fmt::format("{:.6g}", figure.median));
  }
  Findings findings;
  for (auto& [card, finding] : slow) {
    finding.evidence.english += ".";
    finding.evidence.chinese += "。";
    findings.push_back(std::move(finding));
  }
  for (const auto& [model, count] : measured) {
    if (count >= 3 && slow.empty()) {
      findings.push_back(MakeFinding(
          Verdict::kOk,
          {fmt::format("{} of one model keep the same pace.", base::Counted(static_cast<std::uint64_t>(count), "card")),
           fmt::format("同型号的 {} 张卡速度一致。", count)}));
    }
  }
  if (findings.empty()) {
    findings.push_back(MakeFinding(
        Verdict::kCannotTell,
        {"Fewer than three cards of one model gave figures: there is nothing to compare with.",
         "同型号且有数据的卡不足三张，无法比较。"},
        {"Compare the figures of the check card-proof with the vendor's.", "将 card-proof 的数据与厂商指标比较。"}));
  }
  return findings;
}

Findings CheckTelemetry(const MachineUnderTest& machine) {
  const auto cards = machine.inventory.Cards();
  if (cards.empty()) return NoCard();
  const auto proofs = ProofsOf(machine);
  PerCard result;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const CardProof& proof = (*proofs)[i];
    if (!proof.was_busy || !proof.highest_utilization_percent) {
      result.Unknown(*cards[i]);
    } else if (*proof.highest_utilization_percent > 0) {
      result.Good(*cards[i]);
    } else {
      result.Bad(MakeFinding(
          Verdict::kFail,
          {Title(*cards[i]) +
               " computed, and its utilisation stayed at 0 %: the work went elsewhere, or its telemetry is wrong.",
           Title(*cards[i]) + " 在计算时利用率仍为 0 %：工作去了别处，或遥测数据有误。"},
          {"Check that the number means the same card in torch and in the driver (visible-device list, device "
           "order), then the "
           "vendor's tool.",
           "检查该编号在 torch 和驱动中是否为同一张卡（可见设备列表、设备顺序），再看厂商工具。"},
          "C1", {{"card", device::NameOf(*cards[i])}}));
    }
  }
  return result.Done({"utilisation rose above 0 % while it computed", "计算时利用率高于 0 %"},
                     {"it did not compute, or its utilisation is not told", "未计算，或没有利用率数据"},
                     {"See the check card-proof; install the vendor's management library for utilisation.",
                      "见 card-proof 检查；安装厂商管理库以获取利用率。"});
}

Findings CheckMemoryErrors(const MachineUnderTest& machine) {
  const auto cards = machine.inventory.Cards();
  if (cards.empty()) return NoCard();
  const auto proofs = ProofsOf(machine);
  PerCard result;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if ((*proofs)[i].ecc_uncorrected || (*proofs)[i].rows_failed) {
      JudgeMemoryErrors(*cards[i], (*proofs)[i], result);
    } else {
      result.Unknown(*cards[i]);
    }
  }
  return result.Done({"no uncorrected memory error and no row that waits to be replaced",
                      "没有不可纠正的内存错误，也没有待替换的内存行"},
                     {"its driver does not count memory errors", "驱动不统计内存错误"},
                     {"Ask the vendor's tool for ECC errors.", "用厂商工具查询 ECC 错误。"});
}

}  // namespace fulldeck::doctor
