#include <algorithm>
#include <set>

#include "base/text.h"
#include "device/survey.h"
#include "device/vendor_traits.h"
#include "doctor/machine/container_checks.h"
#include "doctor/stack/vendor_needs.h"

namespace fulldeck::doctor {
namespace {

// A vendor whose cards are on the bus or have device nodes here.
struct Here {
  const device::VendorTraits* traits = nullptr;
  const VendorNeeds* needs = nullptr;
  std::size_t functions = 0;
  std::vector<std::string> nodes;
};

// Display adapters of CPUs and virtual machines are not cards. A vendor counts if its driver is loaded, if it has
// device nodes, or if the function is an accelerator or 3D controller.
bool IsAccelerator(const device::PciFunction& function) {
  return (function.class_code >> 16) == 0x12 || (function.class_code >> 8) == 0x0302;
}

std::vector<Here> VendorsHere(const MachineUnderTest& machine) {
  std::vector<Here> found;
  // Simulated cards replace the real ones and have no device nodes.
  if (machine.inventory.simulated) return found;
  const device::Survey survey = device::TakeSurvey(machine.root);
  for (const device::VendorTraits& traits : device::AllVendorTraits()) {
    const VendorNeeds* needs = FindVendorNeeds(traits.name);
    if (needs == nullptr) continue;
    Here here{&traits, needs, 0, {}};
    const std::string module = traits.kernel_module;
    const bool loaded = !module.empty() && machine.root.Exists("/sys/module/" + module);
    for (const device::PciFunction& function : survey.Of(traits)) {
      if (loaded || IsAccelerator(function)) ++here.functions;
    }
    for (const auto& node : survey.Nodes(traits)) here.nodes.push_back(node.second);
    if (here.functions > 0 || !here.nodes.empty()) found.push_back(std::move(here));
  }
  return found;
}

std::vector<std::string> LibraryFolders(const MachineUnderTest& machine, const VendorNeeds& needs) {
  std::vector<std::string> folders;
  const std::string named = machine.environment.Get("LD_LIBRARY_PATH").value_or("");
  for (const std::string_view folder : base::Split(named, ':')) {
    if (folder.starts_with('/')) folders.emplace_back(folder);
  }
  folders.insert(folders.end(), needs.folders.begin(), needs.folders.end());
  for (const char* usual :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
        "/usr/lib64", "/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/lib", "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib", "/usr/local/cuda/compat"}) {
    folders.emplace_back(usual);
  }
  return folders;
}

std::optional<std::string> FindLibrary(const MachineUnderTest& machine, const VendorNeeds& needs,
                                       std::string_view library) {
  for (const std::string& folder : LibraryFolders(machine, needs)) {
    // libefml.so may also exist as libefml.so.1.
    for (const char* suffix : {"", ".1", ".2"}) {
      const std::string path = fmt::format("{}/{}{}", folder, library, suffix);
      if (machine.root.Exists(path)) return path;
    }
  }
  return std::nullopt;
}

base::BilingualText HowToGive(const Here& here, const MachineUnderTest& machine) {
  if (FindContainer(machine.root)) {
    return Bilingual("give them to the container: {}", "把它们交给容器：{}", here.needs->container_flags);
  }
  return Bilingual("install or load the driver of {}", "安装或加载 {} 的驱动", here.traits->title);
}

}  // namespace

std::vector<Finding> CheckDeviceNodes(const MachineUnderTest& machine) {
  std::vector<Finding> findings;
  const bool in_container = FindContainer(machine.root).has_value();
  for (const Here& here : VendorsHere(machine)) {
    std::vector<std::string> missing;
    std::vector<std::string> missing_control;
    std::vector<std::string> refused;
    const std::string prefix = here.traits->node_prefix;
    const std::size_t without_node =
        !prefix.empty() && here.functions > here.nodes.size() ? here.functions - here.nodes.size() : 0;
    // In a container the bus shows every card of the machine, including cards that it was not given.
    const bool given_subset =
        in_container && !here.nodes.empty() && static_cast<std::size_t>(machine.ranks) <= here.nodes.size();
    if (without_node > 0 && !given_subset) {
      missing.push_back(fmt::format("{} of {} × {}N", without_node, here.functions, prefix));
    }
    std::vector<std::string> nodes = here.nodes;
    for (const std::string_view control : here.needs->control_nodes) {
      if (machine.root.Exists(control)) {
        nodes.emplace_back(control);
      } else {
        missing_control.emplace_back(control);
      }
    }
    for (const std::string& node : nodes) {
      if (!machine.kernel->MayUse(machine.root.Path(node))) refused.push_back(node);
    }
    // Outside a container some drivers create their control nodes on first use.
    if (in_container) missing.insert(missing.end(), missing_control.begin(), missing_control.end());
    const Figures figures = {{"vendor", here.traits->name},
                             {"on_the_bus", std::to_string(here.functions)},
                             {"nodes", std::to_string(here.nodes.size())}};
    if (!missing.empty()) {
      findings.push_back(Fail(Bilingual("{}: {} on the PCI bus, but device nodes are missing: {}",
                                        "{}：PCI 总线上有 {} 张卡，但缺少设备节点：{}", here.traits->title,
                                        here.functions, base::Join(missing, ", ")),
                              HowToGive(here, machine), "D2", figures));
    } else if (!missing_control.empty()) {
      findings.push_back(
          Warn(Bilingual("{}: control nodes are not there yet: {}", "{}：控制节点尚不存在：{}", here.traits->title,
                         base::Join(missing_control, ", ")),
               Bilingual("run the vendor's tool once as root, which lets the driver make them; else load the driver",
                         "以 root 运行一次厂商工具，驱动会创建它们；否则加载驱动"),
               "D2", figures));
    }
    if (!refused.empty()) {
      findings.push_back(Fail(Bilingual("{}: this user may not read and write {}", "{}：本用户无权读写 {}",
                                        here.traits->title, base::Join(refused, ", ")),
                              Bilingual("add the user to the group of the node (ls -l {0}), or mend the permissions",
                                        "把用户加入该节点所属的组（ls -l {0}），或修改权限", refused.front()),
                              "I11", figures));
    }
    if (!missing.empty() || !missing_control.empty() || !refused.empty()) continue;
    findings.push_back(
        Ok(without_node > 0
               ? Bilingual("{}: {} of the {} cards of this machine are given to this container, and may be used",
                           "{0}：本容器得到了机器 {2} 张卡中的 {1} 张，均可使用", here.traits->title, here.nodes.size(),
                           here.functions)
               : Bilingual("{}: {} nodes for {} cards on the bus, {} control nodes, all may be read and written",
                           "{}：{} 个节点对应总线上 {} 张卡，{} 个控制节点，均可读写", here.traits->title,
                           here.nodes.size(), here.functions, here.needs->control_nodes.size()),
           figures));
  }
  return findings;
}

std::vector<Finding> CheckVendorLibraries(const MachineUnderTest& machine) {
  std::vector<Finding> findings;
  for (const Here& here : VendorsHere(machine)) {
    if (here.needs->libraries.empty()) continue;
    std::vector<std::string> missing;
    std::vector<std::string> found;
    for (const std::string_view library : here.needs->libraries) {
      if (const auto path = FindLibrary(machine, *here.needs, library)) {
        found.push_back(*path);
      } else {
        missing.emplace_back(library);
      }
    }
    const Figures figures = {
        {"vendor", here.traits->name}, {"found", base::Join(found, " ")}, {"missing", base::Join(missing, " ")}};
    if (missing.empty()) {
      findings.push_back(Ok(Bilingual("{}: {}", "{}：{}", here.traits->title, base::Join(found, ", ")), figures));
    } else {
      findings.push_back(
          Fail(Bilingual("{}: cards are there, but {} is in none of the library folders",
                         "{}：有卡，但各库目录中都没有 {}", here.traits->title, base::Join(missing, ", ")),
               HowToGive(here, machine), "D8", figures));
    }
  }
  return findings;
}

std::vector<Finding> CheckVendorTool(const MachineUnderTest& machine) {
  std::vector<Finding> findings;
  for (const Here& here : VendorsHere(machine)) {
    if (here.needs->tool.empty()) continue;
    const auto path = machine.root.FindProgram(here.needs->tool, machine.environment);
    const Figures figures = {{"vendor", here.traits->name}, {"tool", std::string(here.needs->tool)}};
    if (path) {
      findings.push_back(Ok(Bilingual("{}: {}", "{}：{}", here.traits->title, *path), figures));
    } else {
      findings.push_back(Warn(Bilingual("{}: cards are there, but its tool {} is not in PATH",
                                        "{}：有卡，但 PATH 中没有工具 {}", here.traits->title, here.needs->tool),
                              HowToGive(here, machine), "H2", figures));
    }
  }
  return findings;
}

}  // namespace fulldeck::doctor
