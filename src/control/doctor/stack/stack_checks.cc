// The group "stack", first half: interpreter, torch, the vendor's module, driver, version compatibility, variables,
// MMEngine's installation. The second half is stack_library_checks.cc.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "device/vendor_traits.h"
#include "doctor/stack/stack_answers.h"
#include "doctor/stack/stack_library_checks.h"
#include "doctor/stack/version_pairs.h"
#include "patch/patched_file.h"

namespace fulldeck::doctor {
namespace {

using Findings = std::vector<Finding>;

Finding MakeFinding(Verdict verdict, base::BilingualText evidence, base::BilingualText fix = {}, std::string row = {},
                    std::vector<std::pair<std::string, std::string>> figures = {}) {
  return {verdict, std::move(evidence), std::move(fix), std::move(row), std::move(figures)};
}

// Why there is no result if the interpreter did not answer, or not completely.
std::optional<Finding> NotAnswered(const StackAnswers& answers) {
  if (answers.python && answers.python->major >= 3 && answers.modules_known) return std::nullopt;
  const std::string why = !answers.python             ? answers.failure
                          : answers.python->major < 3 ? "it is Python " + answers.python->version
                                                      : answers.stopped;
  return MakeFinding(Verdict::kCannotTell,
                     {"The interpreter could not be asked: " + why + ".", "未能询问解释器：" + why + "。"},
                     {"See the check python-interpreter.", "见 python-interpreter 检查。"});
}

Findings CheckInterpreter(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  const std::string name = base::Printable(machine.python);
  if (!answers->python) {
    return {MakeFinding(Verdict::kFail,
                        {machine.python.empty() ? "There is no Python: neither VIRTUAL_ENV nor PATH has one."
                                                : name + " does not work: it " + answers->failure + ".",
                         machine.python.empty() ? "没有 Python：VIRTUAL_ENV 和 PATH 中都没有。"
                                                : name + " 无法工作：" + answers->failure + "。"},
                        {"Activate the environment of the training, or name its interpreter: --python PATH.",
                         "激活训练所用的环境，或指定解释器：--python PATH。"},
                        "C10")};
  }
  const PythonAnswer& python = *answers->python;
  if (python.major < 3) {
    return {MakeFinding(
        Verdict::kFail,
        {fmt::format("{} is Python {}.", name, python.version), fmt::format("{} 是 Python {}。", name, python.version)},
        {"Scripts of today do not run on it: start them with python3, or activate the environment first.",
         "现在的脚本无法在其上运行：用 python3 启动，或先激活环境。"},
        "C10")};
  }
  Findings findings;
  if (python.major == 3 && python.minor < 8) {
    findings.push_back(
        MakeFinding(Verdict::kWarn,
                    {fmt::format("{} is Python {}, older than any that fulldeck's adapters and today's torch take.",
                                 name, python.version),
                     fmt::format("{} 是 Python {}，低于 fulldeck 适配器和当前 torch 的要求。", name, python.version)},
                    {"Use Python 3.8 or newer (3.8 for T20 stacks, 3.10 or newer for the others).",
                     "使用 Python 3.8 或更新版本（T20 用 3.8，其他用 3.10 及以上）。"},
                    "C10"));
  } else {
    findings.push_back(
        MakeFinding(Verdict::kOk,
                    {fmt::format("{} is Python {}{}.", name, python.version,
                                 python.in_environment() ? ", in the environment " + python.prefix
                                                         : ", not in a virtual environment"),
                     fmt::format("{} 是 Python {}{}。", name, python.version,
                                 python.in_environment() ? "，位于环境 " + python.prefix : "，不在虚拟环境中")},
                    {}, "", {{"version", python.version}, {"executable", python.executable}}));
  }
  // A start script that calls `python train.py` uses this one.
  const auto plain = machine.root.is_machine() ? machine.root.FindProgram("python", machine.environment) : std::nullopt;
  if (plain && *plain != machine.python) {
    const std::string version = PythonVersionOf(*plain, machine);
    if (version.starts_with("2.")) {
      findings.push_back(MakeFinding(
          Verdict::kWarn,
          {fmt::format("The command python is {}, which is Python {}.", base::Printable(*plain),
                       base::Printable(version)),
           fmt::format("命令 python 是 {}，即 Python {}。", base::Printable(*plain), base::Printable(version))},
          {"Write python3 in start scripts, or activate the environment before them.",
           "启动脚本中写 python3，或先激活环境。"},
          "C10"));
    }
  }
  return findings;
}

// "2.11.0" and "2.11.0+cu130" are the same release: package indexes omit the build label.
bool SameRelease(std::string_view one, std::string_view other) {
  const auto release = [](std::string_view version) { return version.substr(0, version.find('+')); };
  const bool both_labeled = one.find('+') != std::string_view::npos && other.find('+') != std::string_view::npos;
  return both_labeled ? one == other : release(one) == release(other);
}

bool HasCardsOf(const MachineUnderTest& machine, std::string_view vendor) {
  const auto cards = machine.inventory.Cards();
  return std::any_of(cards.begin(), cards.end(),
                     [&](const device::Card* card) { return card->vendor == vendor && !card->simulated; });
}

Findings CheckTorch(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  if (auto finding = NotAnswered(*answers)) return {*finding};
  const ModuleAnswer* const module = answers->Module("torch");
  if (module == nullptr) {
    return {MakeFinding(
        Verdict::kCannotTell, {"This Python has no torch.", "该 Python 没有 torch。"},
        {"If the training is in PyTorch, this is the wrong interpreter: activate its environment, or --python PATH.",
         "如果训练使用 PyTorch，则解释器不对：激活其环境，或 --python PATH。"})};
  }
  if (!answers->torch) {
    // Without --deep the timeout is short, and a busy machine or a slow disk is not torch's fault.
    const bool perhaps_slow = answers->too_slow && !machine.deep;
    return {MakeFinding(
        perhaps_slow ? Verdict::kCannotTell : Verdict::kFail,
        {"torch could not be imported: " + answers->stopped + ".", "无法导入 torch：" + answers->stopped + "。"},
        {perhaps_slow
             ? "Give it more time: fulldeck doctor --deep --only stack --timeout 60."
             : "Try by hand: python -X faulthandler -c 'import torch'. A hang is mostly a vendor's library that waits "
               "for a card.",
         perhaps_slow ? "给它更多时间：fulldeck doctor --deep --only stack --timeout 60。"
                      : "手动试：python -X faulthandler -c 'import torch'。挂起多半是厂商库在等待卡。"},
        perhaps_slow ? "" : "D8")};
  }
  const TorchAnswer& torch = *answers->torch;
  if (!torch.imports) {
    return {MakeFinding(Verdict::kFail, {"torch does not import: " + torch.error, "torch 无法导入：" + torch.error},
                        {"Install torch anew in this environment; fulldeck explain knows the text: fulldeck explain -.",
                         "在该环境中重装 torch；可用 fulldeck explain - 解释该错误。"},
                        "D8")};
  }
  Findings findings;
  const PackageAnswer* const package = answers->Package("torch");
  if (package != nullptr && !module->version.empty() && !SameRelease(package->version, module->version)) {
    findings.push_back(MakeFinding(
        Verdict::kFail,
        {fmt::format("pip noted torch {}, and the files are torch {}: one was installed over the other.",
                     package->version, module->version),
         fmt::format("pip 记录的是 torch {}，而文件是 torch {}：一个覆盖了另一个。", package->version,
                     module->version)},
        {"pip uninstall torch until it says that there is none, then install the one that the vendor names.",
         "反复 pip uninstall torch 直到提示没有，再安装厂商指定的版本。"},
        "D7"));
  }
  std::set<std::string> versions;
  for (const PackageAnswer& entry : answers->packages) {
    if (entry.name == "torch") versions.insert(entry.version);
  }
  if (versions.size() > 1) {
    findings.push_back(
        MakeFinding(Verdict::kWarn,
                    {fmt::format("Several torch are noted: {}. Python takes {} ({}).",
                                 base::Join(std::vector<std::string>(versions.begin(), versions.end()), ", "),
                                 torch.version, torch.file),
                     fmt::format("记录了多个 torch：{}。Python 使用 {}（{}）。",
                                 base::Join(std::vector<std::string>(versions.begin(), versions.end()), ", "),
                                 torch.version, torch.file)},
                    {"Remove those that are not meant: a user's or system's folder is also on the path.",
                     "删除不需要的：用户或系统目录也在搜索路径中。"},
                    "D7"));
  }
  if (HasCardsOf(machine, "nvidia") && torch.cuda.empty()) {
    findings.push_back(MakeFinding(
        Verdict::kFail,
        {fmt::format(
             "torch {} is a build without CUDA, and this machine has NVIDIA cards: training would go to the processor.",
             torch.version),
         fmt::format("torch {} 不含 CUDA，而本机有 NVIDIA 卡：训练会落到处理器上。", torch.version)},
        {"Install a CUDA build: pip install torch --index-url https://download.pytorch.org/whl/cu128 (or cu118, as the "
         "driver allows).",
         "安装 CUDA 版：pip install torch --index-url https://download.pytorch.org/whl/cu128（或按驱动选择 cu118）。"},
        "B6"));
  }
  if (HasCardsOf(machine, "amd") && torch.hip.empty()) {
    findings.push_back(
        MakeFinding(Verdict::kFail,
                    {fmt::format("torch {} is a build without ROCm, and this machine has AMD cards.", torch.version),
                     fmt::format("torch {} 不含 ROCm，而本机有 AMD 卡。", torch.version)},
                    {"Install a ROCm build of torch.", "安装 ROCm 版 torch。"}, "B6"));
  }
  if (!torch.gloo) {
    findings.push_back(MakeFinding(
        Verdict::kWarn,
        {fmt::format("torch {} has no Gloo: ranks on the processor and time-outs between hosts have no way to talk.",
                     torch.version),
         fmt::format("torch {} 没有 Gloo：处理器上的进程无法通信。", torch.version)},
        {"Install a build with torch.distributed, or use the backend fulldeck.",
         "安装带 torch.distributed 的版本，或使用 fulldeck 后端。"},
        "A4"));
  }
  if (findings.empty()) {
    const std::string built = !torch.cuda.empty()  ? "CUDA " + torch.cuda
                              : !torch.hip.empty() ? "ROCm " + torch.hip
                                                   : "the processor";
    findings.push_back(
        MakeFinding(Verdict::kOk,
                    {fmt::format("torch {} was imported in {:.1f} s; built for {}, with {}.", torch.version,
                                 torch.seconds, built, torch.nccl ? "NCCL and Gloo" : "Gloo"),
                     fmt::format("已导入 torch {}（{:.1f} 秒）；构建目标 {}，含 {}。", torch.version, torch.seconds,
                                 built, torch.nccl ? "NCCL 和 Gloo" : "Gloo")},
                    {}, "", {{"version", torch.version}, {"cuda", torch.cuda}, {"file", torch.file}}));
  }
  return findings;
}

Findings CheckVendorModule(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  if (auto finding = NotAnswered(*answers)) return {*finding};
  std::map<std::string, int> visible;  // module to number of cards
  for (const device::Card* card : machine.inventory.Cards()) {
    if (!card->simulated && !card->torch_module.empty())
      visible[card->torch_module] += card->visible && card->present ? 1 : 0;
  }
  Findings findings;
  for (const auto& [module, cards] : visible) {
    const std::string name = module;
    if (answers->Module(name) == nullptr) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {fmt::format("{} is not installed: torch does not know the {} here.", name,
                       base::Counted(static_cast<std::uint64_t>(cards), "visible card")),
           fmt::format("有 {} 张可见卡，但未安装 {}：torch 不认识这些卡。", cards, name)},
          {fmt::format("Install the vendor's wheel that fits this torch and Python, with this interpreter: python "
                       "-m pip install {}-*.whl.",
                       name),
           fmt::format("用该解释器安装与 torch、Python 配套的厂商包：python -m pip install {}-*.whl。", name)},
          "D1"));
      continue;
    }
    const auto vendor = std::find_if(answers->vendors.begin(), answers->vendors.end(),
                                     [&](const VendorAnswer& v) { return v.module == name; });
    if (vendor == answers->vendors.end()) {
      findings.push_back(MakeFinding(
          answers->too_slow && !machine.deep ? Verdict::kCannotTell : Verdict::kFail,
          {name + " could not be imported: " + answers->stopped + ".", name + " 无法导入：" + answers->stopped + "。"},
          {"See what it waits for or where it crashes: python -X faulthandler -c 'import torch, " + name + "'.",
           "查看卡在哪里或在哪里崩溃：python -X faulthandler -c 'import torch, " + name + "'。"},
          "D7"));
    } else if (!vendor->imports) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {name + " is installed and does not import: " + vendor->error, name + " 已安装但无法导入：" + vendor->error},
          {"Mostly it was built for another torch (see the check version-pairs) or misses a library: fulldeck explain "
           "-.",
           "多半是为另一版本的 torch 编译（见 version-pairs 检查）或缺库：fulldeck explain -。"},
          "D7"));
    } else if (!vendor->available.value_or(false)) {
      const std::string why = vendor->query_error.empty() ? "" : " (" + vendor->query_error + ")";
      findings.push_back(
          MakeFinding(Verdict::kFail,
                      {fmt::format("{} {} imports and says that no card is available{}.", name, vendor->version, why),
                       fmt::format("{} {} 可以导入，但报告没有可用的卡{}。", name, vendor->version, why)},
                      {"Compare with fulldeck devices: driver, device nodes and the visible-device list.",
                       "与 fulldeck devices 对比：驱动、设备节点和可见设备列表。"},
                      "B7"));
    } else if (vendor->count && *vendor->count != cards) {
      findings.push_back(MakeFinding(
          Verdict::kWarn,
          {fmt::format("{} counts {}, the inventory {} visible.", name,
                       base::Counted(static_cast<std::uint64_t>(std::max(0, *vendor->count)), "card"), cards),
           fmt::format("{} 看到 {} 张卡，清单中可见 {} 张。", name, *vendor->count, cards)},
          {"Check the visible-device list and the container's devices.", "检查可见设备列表和容器的设备。"}, "B9"));
    } else {
      findings.push_back(MakeFinding(
          Verdict::kOk,
          {fmt::format("{} {} imports and counts {}.", name, vendor->version,
                       base::Counted(static_cast<std::uint64_t>(std::max(0, vendor->count.value_or(0))), "card")),
           fmt::format("{} {} 可以导入，看到 {} 张卡。", name, vendor->version, vendor->count.value_or(0))}));
    }
  }
  if (visible.empty()) {
    findings.push_back(
        MakeFinding(Verdict::kOk, {"No card here needs a module beside torch.", "这里的卡不需要 torch 以外的模块。"}));
  }
  return findings;
}

Findings CheckDriver(const MachineUnderTest& machine) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> drivers;  // vendor, version, cards
  for (const device::Card* card : machine.inventory.Cards()) {
    if (!card->simulated) drivers[card->vendor][card->driver.value_or("")].push_back(device::NameOf(*card));
  }
  if (drivers.empty()) return {};  // no card, or only simulated ones
  Findings findings;
  for (const auto& [vendor, versions] : drivers) {
    if (versions.contains("")) {
      findings.push_back(MakeFinding(
          Verdict::kCannotTell, {vendor + ": the version of the driver is not told.", vendor + "：没有驱动版本信息。"},
          {"Install the vendor's management library; fulldeck devices says what is missing.",
           "安装厂商的管理库；fulldeck devices 会说明缺什么。"}));
    } else if (versions.size() > 1) {
      findings.push_back(MakeFinding(
          Verdict::kFail, {vendor + ": the cards name different drivers.", vendor + "：各卡报告的驱动版本不同。"},
          {"Reboot after a driver update; kernel module and libraries must be of one release.",
           "更新驱动后重启；内核模块与库必须同一版本。"},
          "I6"));
    } else {
      findings.push_back(MakeFinding(Verdict::kOk,
                                     {fmt::format("{}: driver {}.", vendor, versions.begin()->first),
                                      fmt::format("{}：驱动 {}。", vendor, versions.begin()->first)},
                                     {}, "", {{"vendor", vendor}, {"driver", versions.begin()->first}}));
    }
  }
  return findings;
}

Installed WhatIsInstalled(const MachineUnderTest& machine, const StackAnswers& answers) {
  Installed installed;
  for (auto package = answers.packages.rbegin(); package != answers.packages.rend(); ++package) {
    installed[package->name] = package->version;  // the first on the path wins
  }
  if (const ModuleAnswer* const torch = answers.Module("torch"); torch != nullptr && !torch->version.empty()) {
    installed["torch"] = torch->version;
    if (!torch->cuda.empty()) installed["torch-cuda"] = torch->cuda;
  }
  if (answers.python) installed["python"] = answers.python->version;
  for (const device::Card* card : machine.inventory.Cards()) {
    if (card->simulated) continue;
    if (card->vendor == "nvidia" && card->driver) installed["nvidia-driver"] = *card->driver;
    if (card->vendor == "enflame" && card->torch_type)
      installed[*card->torch_type == "xla" ? "card-gcu-1" : "card-gcu-2"] = "1";
  }
  return installed;
}

Findings CheckVersionPairs(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  if (auto finding = NotAnswered(*answers)) return {*finding};
  const Installed installed = WhatIsInstalled(machine, *answers);
  Comparison all = ComparePairs(installed);
  std::set<std::string> queried;
  for (const PackageAnswer& package : answers->packages) {
    if (package.requirements.empty() || !queried.insert(package.name).second) continue;
    const Comparison own = CompareRequirements(package.name, package.requirements, installed);
    all.compared += own.compared;
    for (const Mismatch& mismatch : own.mismatches) {
      // The table may have named the same pair already.
      const bool known = std::any_of(all.mismatches.begin(), all.mismatches.end(), [&](const Mismatch& named) {
        return std::minmax(named.package, named.other) == std::minmax(mismatch.package, mismatch.other);
      });
      if (!known) all.mismatches.push_back(mismatch);
    }
  }
  Findings findings;
  for (const Mismatch& pair : all.mismatches) {
    const bool is_card = pair.package.starts_with("card-");
    const std::string what = is_card ? "this generation of Enflame cards" : pair.package + " " + pair.version;
    findings.push_back(MakeFinding(
        Verdict::kFail,
        {fmt::format("{} needs {} {}, and {} is here.", what, pair.other, pair.wanted, pair.other_version),
         fmt::format("{} 需要 {} {}，现有 {}。", is_card ? "这一代燧原卡" : what, pair.other, pair.wanted,
                     pair.other_version)},
        {pair.other == "nvidia-driver" ? "Update the NVIDIA driver, or install a torch for an older CUDA."
         : pair.other == "python"
             ? "Use an interpreter of that version for this stack."
             : fmt::format("Install a pair that fits: python -m pip install \"{}{}\".", pair.other, pair.wanted),
         pair.other == "nvidia-driver" ? "更新 NVIDIA 驱动，或安装面向更旧 CUDA 的 torch。"
         : pair.other == "python"
             ? "为该软件栈使用对应版本的解释器。"
             : fmt::format("安装配套版本：python -m pip install \"{}{}\"。", pair.other, pair.wanted)},
        pair.row,
        {{"package", pair.package},
         {"version", pair.version},
         {"other", pair.other},
         {"other_version", pair.other_version},
         {"wanted", pair.wanted}}));
  }
  if (!findings.empty()) return findings;
  if (all.compared == 0 && answers->Module("torch") == nullptr) return {};
  if (all.compared == 0) {
    return {
        MakeFinding(Verdict::kCannotTell,
                    {"None of the packages that have known partners is installed.", "没有安装已知配套关系的包。"},
                    {"Name the interpreter of the training: --python PATH.", "指定训练所用的解释器：--python PATH。"})};
  }
  return {MakeFinding(Verdict::kOk,
                      {base::Counted(static_cast<std::uint64_t>(all.compared), "pair") + " of versions fit together.",
                       std::to_string(all.compared) + " 对版本相互配套。"},
                      {}, "", {{"compared", std::to_string(all.compared)}})};
}

Findings CheckVariables(const MachineUnderTest& machine) {
  Findings findings;
  std::set<std::string> seen;
  for (const device::VendorTraits& traits : device::AllVendorTraits()) {
    const auto report = std::find_if(machine.inventory.vendors.begin(), machine.inventory.vendors.end(),
                                     [&](const device::VendorReport& vendor) { return vendor.vendor == traits.name; });
    const bool here = report != machine.inventory.vendors.end() && !report->cards.empty();
    const std::string name = traits.visibility_variable;
    const auto value = machine.environment.Get(name);
    const auto second = *traits.second_visibility_variable != '\0'
                            ? machine.environment.Get(traits.second_visibility_variable)
                            : std::nullopt;
    if (here && value && second && *value != *second) {
      findings.push_back(
          MakeFinding(Verdict::kFail,
                      {fmt::format("{}={} and {}={}: both count, one inside the other.", name, base::Printable(*value),
                                   traits.second_visibility_variable, base::Printable(*second)),
                       fmt::format("{}={} 与 {}={} 同时生效，一个套在另一个里面。", name, base::Printable(*value),
                                   traits.second_visibility_variable, base::Printable(*second))},
                      {"Set one of them only.", "只设置其中一个。"}, "B9"));
      continue;
    }
    if (!value || !seen.insert(name).second) continue;
    const auto rank = machine.environment.Get("LOCAL_RANK");
    const auto rank_number = rank ? base::ParseInteger<int>(*rank) : std::nullopt;
    int visible = 0;
    std::vector<std::string> names;
    if (here) {
      for (const device::Card& card : report->cards) {
        if (!card.visible) continue;
        ++visible;
        if (card.torch_device) names.push_back(*card.torch_device + " is card " + std::to_string(card.index));
      }
    }
    if (here && report->bad_visibility) {
      findings.push_back(MakeFinding(Verdict::kFail, {*report->bad_visibility, *report->bad_visibility},
                                     {"Correct the variable, or unset it.", "改正或取消该变量。"}, "B9"));
    } else if (here && rank_number && *rank_number >= visible) {
      findings.push_back(MakeFinding(
          Verdict::kFail,
          {fmt::format("{}={} leaves {}, and LOCAL_RANK={} asks for number {}: the card is hidden and counted at once.",
                       name, base::Printable(*value), base::Counted(static_cast<std::uint64_t>(visible), "card"),
                       *rank_number, *rank_number),
           fmt::format("{}={} 只留下 {} 张卡，而 LOCAL_RANK={} 要第 {} 张：既隐藏又按编号取。", name,
                       base::Printable(*value), visible, *rank_number, *rank_number)},
          {"Either hide cards and use number 0 in every rank, or show all and use LOCAL_RANK. fulldeck run does one of "
           "them by itself.",
           "要么每个进程只见一张卡并用 0 号，要么全部可见并用 LOCAL_RANK。fulldeck run 会自行处理。"},
          "B9"));
    } else if (here) {
      findings.push_back(
          MakeFinding(Verdict::kOk, {fmt::format("{}={}: {}.", name, base::Printable(*value),
                                                 names.empty() ? "no card is left" : base::Join(names, ", ")),
                                     fmt::format("{}={}：{}。", name, base::Printable(*value),
                                                 names.empty() ? "没有可见的卡" : base::Join(names, "，"))}));
    } else if (!machine.inventory.Cards().empty()) {
      findings.push_back(
          MakeFinding(Verdict::kWarn,
                      {fmt::format("{}={} is set, and no card here reads it.", name, base::Printable(*value)),
                       fmt::format("设置了 {}={}，但这里没有卡读取它。", name, base::Printable(*value))},
                      {"It hides nothing. The variable of the cards here: fulldeck devices shows it.",
                       "它不起作用。这里的卡所用的变量见 fulldeck devices。"},
                      "B9"));
    }
  }
  if (findings.empty()) {
    findings.push_back(MakeFinding(Verdict::kOk, {"No visible-device list is set: a run sees every card.",
                                                  "没有设置可见设备列表：训练可见全部卡。"}));
  }
  return findings;
}

Findings CheckMmengine(const MachineUnderTest& machine) {
  const auto answers = AnswersOf(machine);
  if (auto finding = NotAnswered(*answers)) return {*finding};
  const ModuleAnswer* const module = answers->Module("mmengine");
  if (module == nullptr || module->folder.empty()) return {};  // not installed
  const patch::PatchedFile file(module->folder + "/runner/runner.py");
  const std::string title = fmt::format(
      "MMEngine {} in {}", module->version.empty() ? "of unknown version" : module->version, module->folder);
  const auto status = file.Status();
  if (!status) {
    return {MakeFinding(Verdict::kFail, {title + ": " + status.error().message, title + "：" + status.error().message},
                        {"The package is not whole: pip install --force-reinstall --no-deps mmengine.",
                         "该包不完整：pip install --force-reinstall --no-deps mmengine。"},
                        "E3")};
  }
  const auto why_not = file.WhyNotWritable();
  const base::BilingualText rights = why_not ? base::BilingualText{" It cannot be changed by this user, so that fulldeck patch would refuse; fulldeck run --trace-ddp changes no file.",
                                       " 当前用户无法修改，fulldeck patch 会拒绝；fulldeck run --trace-ddp 不改文件。"}
                               : base::BilingualText{" It can be changed by this user.", " 当前用户可以修改。"};
  switch (status->state) {
    case patch::PatchState::kNotPatched:
      return {MakeFinding(Verdict::kOk, {title + "." + rights.english, title + "。" + rights.chinese}, {}, "",
                          {{"folder", module->folder}, {"writable", why_not ? "no" : "yes"}})};
    case patch::PatchState::kPatched:
      return {MakeFinding(Verdict::kOk,
                          {title + " has the lines of fulldeck patch." + rights.english,
                           title + " 含有 fulldeck patch 的代码。" + rights.chinese},
                          {}, "",
                          {{"folder", module->folder}, {"writable", why_not ? "no" : "yes"}, {"patched", "yes"}})};
    case patch::PatchState::kChangedMeanwhile:
    case patch::PatchState::kLinesWithoutNote:
      break;
  }
  return {MakeFinding(
      Verdict::kWarn,
      {title + ": runner.py was patched once and changed by somebody else since.",
       title + "：runner.py 曾被打补丁，之后又被他人修改。"},
      {"Install it anew: pip install --force-reinstall --no-deps mmengine; then fulldeck patch mmengine --status.",
       "重新安装：pip install --force-reinstall --no-deps mmengine；再看 fulldeck patch mmengine --status。"},
      "D9")};
}

}  // namespace

std::vector<Check> StackChecks() {
  const auto check = [](std::string_view id, Findings (*run)(const MachineUnderTest&)) {
    Check made{id, Group::kStack, run};
    // One child process answers all of them. It usually takes the two seconds that torch takes to load; longer on a
    // slow disk.
    made.family = "stack";
    made.limit = std::chrono::seconds(25);
    made.deep_limit = std::chrono::minutes(5);
    return made;
  };
  return {
      check("python-interpreter", CheckInterpreter), check("torch-import", CheckTorch),
      check("vendor-module", CheckVendorModule),     check("driver-version", CheckDriver),
      check("version-pairs", CheckVersionPairs),     check("collective-library", CheckCollectiveLibrary),
      check("stub-libraries", CheckStubLibraries),   check("hand-made-modules", CheckHandMadeModules),
      check("edited-packages", CheckEditedPackages), check("library-path", CheckLibraryPath),
      check("visible-variables", CheckVariables),    check("mmengine-install", CheckMmengine),
  };
}

}  // namespace fulldeck::doctor
