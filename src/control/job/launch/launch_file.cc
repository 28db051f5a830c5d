#include "job/launch/launch_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "device/vendor_traits.h"

namespace fulldeck::job {
namespace {

// The names that frameworks and schedulers use for the cards of a vendor. Empty: they have none.
struct ForeignNames {
  const char* vendor;
  const char* accelerate;  // distributed_type for several cards
  const char* resource;    // provided by the vendor's Kubernetes device plugin
};
constexpr ForeignNames kForeignNames[] = {
    {"nvidia", "MULTI_GPU", "nvidia.com/gpu"},
    {"amd", "MULTI_GPU", "amd.com/gpu"},
    {"iluvatar", "MULTI_GPU", "iluvatar.com/gpu"},
    {"metax", "MULTI_GPU", "metax-tech.com/gpu"},
    {"ascend", "MULTI_NPU", "huawei.com/Ascend910"},
    {"cambricon", "MULTI_MLU", "cambricon.com/mlu"},
    {"moorethreads", "MULTI_MUSA", "mthreads.com/gpu"},
    {"intel", "MULTI_XPU", "gpu.intel.com/xe"},
    {"tecorigin", "MULTI_SDAA", ""},
    {"habana", "MULTI_HPU", "habana.ai/gaudi"},
    {"enflame", "", "enflame.com/gcu"},
};

// Quotes a word: in single quotes, valid for both sh and YAML; a word that contains a single quote is quoted in sh's
// way.
std::string ForShell(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ForYaml(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

bool IsObjectName(const std::string& name) {
  const auto takes = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 40 && std::all_of(name.begin(), name.end(), takes) && name.front() >= 'a' &&
         name.back() != '-';
}

class Writer {
 public:
  explicit Writer(const LaunchFileRequest& request)
      : request_(request),
        card_(request.selection.cards.empty() ? nullptr : &request.selection.cards.front()),
        ranks_per_node_(request.selection.ranks),
        in_all_(ranks_per_node_ * request.nodes) {
    if (card_ == nullptr) return;
    for (const ForeignNames& names : kForeignNames) {
      if (card_->vendor == names.vendor) names_ = &names;
    }
  }

  std::string Accelerate() const {
    const bool alone = in_all_ == 1;
    std::string type = "NO", why;
    if (card_ == nullptr) {
      type = alone ? "NO" : "MULTI_CPU";
      why = alone ? "one process on the processors" : "ranks on the processors; they talk through gloo";
    } else if (alone) {
      why = fmt::format("one card ({})", CardText());
    } else {
      type = Known() ? names_->accelerate : "MULTI_GPU";
      why = Known()
                ? fmt::format("Accelerate's word for several {} cards", TorchType())
                : fmt::format("Accelerate has no word for {} cards; this one means \"cards, one a rank\"", TorchType());
    }
    std::string text = Heading("#");
    if (card_ != nullptr && !Known()) {
      text += fmt::format(
          "# Accelerate does not know {0} cards: start it with\n"
          "#   fulldeck run --accelerate-config THIS-FILE {1}\n"
          "# which gives every rank its card and the right backend. `accelerate launch` alone would run every rank as\n"
          "# rank 0 of 1, on the processors, without a word.\n",
          TorchType(), request_.script);
    } else {
      text += fmt::format(
          "# Use: accelerate launch --config_file THIS-FILE {0}\n"
          "# or:  fulldeck run --accelerate-config THIS-FILE {0}\n",
          request_.script);
    }
    text += "compute_environment: LOCAL_MACHINE\n";
    text += Line("distributed_type", fmt::format("'{}'", type), why);
    text += Line("use_cpu", card_ == nullptr ? "true" : "false",
                 card_ == nullptr ? "no card is there, or --devices cpu asked for none"
                                  : "the cards are to be used; never fall back to the processors");
    text += Line("num_processes", std::to_string(in_all_),
                 fmt::format("{} on {}{}", ranks_per_node_, request_.nodes == 1 ? "this host" : "each host",
                             card_ == nullptr ? "" : ", one a card"));
    text += Line("num_machines", std::to_string(request_.nodes), "");
    text += Line("machine_rank", "0",
                 request_.nodes > 1 ? "0 on the first host, 1 on the second, ...: change it there" : "");
    if (request_.nodes > 1) {
      text += Line("main_process_ip", ForYaml(request_.master_addr.empty() ? "HOST-0" : request_.master_addr),
                   request_.master_addr.empty() ? "put the first host's name or address here"
                                                : "the first host, reachable from all");
      text += Line("main_process_port", "29500", "free on the first host");
    }
    if (card_ != nullptr) text += Line("gpu_ids", "all", Visibility());
    text += Line("mixed_precision", "'no'", "a choice of the model's: 'fp16' and 'bf16' change results");
    text += Line("rdzv_backend", "static", "the hosts are known beforehand");
    text += Line("same_network", "true", "");
    text += Line("main_training_function", "main", "");
    text += Line("downcast_bf16", "'no'", "");
    text += Line("enable_cpu_affinity", "false", "fulldeck run --numa-binding does it");
    text += Line("debug", "false", "true compares shapes over the ranks before every collective: slow");
    return text;
  }

  std::string Torchrun() const {
    const bool stock = card_ == nullptr || TorchType() == "cuda";
    std::string text = "#!/bin/sh\n" + Heading("#");
    text += stock ? "# LAUNCHER=\"fulldeck run\" starts the same with fulldeck, which takes torchrun's flags.\n"
                  : fmt::format(
                        "# torchrun would start the ranks, but a script that was written for CUDA finds no card in "
                        "them on {} cards;\n"
                        "# fulldeck run takes torchrun's flags and gives each rank its card. LAUNCHER=torchrun starts "
                        "the same with\n"
                        "# torchrun, for a script that knows {} itself.\n",
                        TorchType(), TorchType());
    text += "set -eu\n";
    std::string flags;
    if (request_.nodes == 1) {
      text += "# One host: --standalone takes a free port, so that two jobs do not meet on 29500.\n";
      flags = fmt::format("--standalone --nproc-per-node={}", ranks_per_node_);
    } else {
      text += "# On every host: NODE_RANK=0 (1, 2, ...) MASTER_ADDR=FIRST-HOST sh THIS-FILE\n";
      text +=
          ": \"${NODE_RANK:?which host this is: 0, 1, ...}\" \"${MASTER_ADDR:?name or address of the first host}\"\n";
      flags = fmt::format(
          "--nnodes={} --nproc-per-node={} --node-rank=\"$NODE_RANK\" \\\n"
          "  --master-addr=\"$MASTER_ADDR\" --master-port=\"${{MASTER_PORT:-29500}}\"",
          request_.nodes, ranks_per_node_);
    }
    // torchrun also defaults to one thread per rank; written out to make it visible.
    text += "# " + std::to_string(ranks_per_node_) +
            (card_ == nullptr ? " ranks on the processors" : " ranks: one a card") + ".\n";
    text += fmt::format("exec ${{LAUNCHER:-{}}} {} \\\n  {} \"$@\"\n", stock ? "torchrun" : "fulldeck run", flags,
                        ForShell(request_.script));
    return text;
  }

  std::string Slurm() const {
    std::string text = "#!/bin/bash\n" + Heading("#") + "# Use: sbatch THIS-FILE [arguments of the script]\n";
    text += fmt::format("#SBATCH --job-name={}\n#SBATCH --nodes={}\n", request_.name, request_.nodes);
    text +=
        "# One task a host: the launcher. It starts the ranks of its host itself; a task a card would start them "
        "twice.\n";
    text += "#SBATCH --ntasks-per-node=1\n";
    if (card_ == nullptr) {
      text += "# No card: the ranks share the processors of a whole host.\n#SBATCH --exclusive\n";
    } else if (card_->vendor == "nvidia" || card_->vendor == "amd") {
      text += fmt::format("# All {} cards of a host.\n#SBATCH --gpus-per-node={}\n", ranks_per_node_, ranks_per_node_);
    } else {
      text += fmt::format(
          "# All {0} cards of a host, under the name that gres.conf of your cluster gives them (`sinfo -o %G` shows "
          "it);\n"
          "# where it has none, leave the line out and take the whole host.\n#SBATCH --gres={1}:{0}\n#SBATCH "
          "--exclusive\n",
          ranks_per_node_, TorchType());
    }
    text +=
        "# Two minutes before the job's time is over the launchers get SIGTERM, and the ranks can save.\n#SBATCH "
        "--signal=TERM@120\nset -eu\n";
    text += fmt::format(
        "# The launchers find each other through Slurm's own variables; without srun there would be one, alone.\n"
        "exec srun --kill-on-bad-exit=1 fulldeck run --nproc-per-node={} \\\n  {} \"$@\"\n",
        ranks_per_node_, ForShell(request_.script));
    return text;
  }

  std::string PytorchJob() const {
    std::string text = Heading("#") + "# Use: kubectl create -f THIS-FILE (Kubeflow's training operator, v1)\n";
    text += fmt::format(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: {}\nspec:\n"
        "  # The operator tells the launchers their number and where the first one is (PET_ variables), and fulldeck "
        "run\n"
        "  # reads them: no flag is needed.\n"
        "  nprocPerNode: \"{}\"\n"
        "  runPolicy:\n    cleanPodPolicy: None  # ended pods stay, so that their logs can be read\n"
        "  pytorchReplicaSpecs:\n    Master:\n      replicas: 1\n      restartPolicy: Never  # a failure is shown, not "
        "hidden in a loop\n"
        "      template:\n",
        request_.name, ranks_per_node_);
    const std::string arguments = fmt::format("[fulldeck, run, {}]", ForYaml(request_.script));
    text += Pod("        ", "pytorch", "the operator looks for a container of this name", arguments);
    if (request_.nodes > 1) {
      text += fmt::format(
          "    Worker:\n      replicas: {}  # and the Master: {}\n      restartPolicy: Never\n      template:\n",
          request_.nodes - 1, NodesText());
      text += Pod("        ", "pytorch", "", arguments);
    }
    return text;
  }

  std::string JobSet() const {
    const std::string first = fmt::format("{0}-hosts-0-0.{0}", request_.name);
    std::string text = Heading("#") + "# Use: kubectl apply -f THIS-FILE (the JobSet controller)\n";
    text += fmt::format(
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: {}\nspec:\n"
        "  network:\n    enableDNSHostnames: true  # the launchers find pod 0 by its name: {}\n"
        "  failurePolicy:\n    maxRestarts: 0  # a failure is shown, not hidden in a loop\n"
        "  replicatedJobs:\n  - name: hosts\n    replicas: 1\n    template:\n      spec:\n"
        "        parallelism: {}\n        completions: {}\n"
        "        completionMode: Indexed  # JOB_COMPLETION_INDEX is the number of the host\n"
        "        backoffLimit: 0\n        template:\n",
        request_.name, first, request_.nodes, request_.nodes);
    std::string arguments = fmt::format("[fulldeck, run, '--nproc-per-node={}', ", ranks_per_node_);
    if (request_.nodes > 1) {
      arguments += fmt::format("'--nnodes={}', '--master-addr={}', '--master-port=29500', ", request_.nodes, first);
    }
    return text + Pod("          ", "trainer", "", arguments + ForYaml(request_.script) + "]");
  }

 private:
  std::string TorchType() const { return card_ == nullptr ? "cpu" : card_->torch_type.value_or(card_->kind); }
  bool Known() const { return names_ != nullptr && *names_->accelerate != '\0'; }

  std::string CardText() const {
    std::string words = card_->simulated ? "simulated " : "";
    const device::VendorTraits* traits = device::FindVendorTraits(card_->vendor);
    words += traits == nullptr ? card_->vendor : traits->title;
    if (card_->model) words += " " + base::Printable(*card_->model);
    return words;
  }

  std::string NodesText() const { return request_.nodes == 1 ? "1 host" : fmt::format("{} hosts", request_.nodes); }

  std::string Heading(const char* mark) const {
    std::string cards = "no card";
    if (card_ != nullptr) {
      const std::size_t count = request_.selection.cards.size();
      cards = fmt::format("{} {} {} ({})", count, CardText(), count == 1 ? "card" : "cards", TorchType());
    }
    const std::string ranks = fmt::format("{} {}", ranks_per_node_, ranks_per_node_ == 1 ? "rank" : "ranks");
    std::string text = request_.nodes == 1
                           ? fmt::format("{} Written by fulldeck for this host: {}, {}.\n", mark, cards, ranks)
                           : fmt::format("{} Written by fulldeck for {} like this one: {}, {} on each.\n", mark,
                                         NodesText(), cards, ranks);
    if (card_ != nullptr && card_->simulated) {
      text += fmt::format("{} The cards are simulated (FULLDECK_SIMULATE): for tests, not for training.\n", mark);
    }
    for (const std::string& note : request_.selection.notes)
      text += fmt::format("{} Note: {}\n", mark, base::Printable(note));
    return text;
  }

  static std::string Line(const std::string& key, const std::string& value, const std::string& why) {
    return key + ": " + value + (why.empty() ? "" : "  # " + why) + "\n";
  }

  std::string Visibility() const {
    const device::VendorTraits* traits = device::FindVendorTraits(card_->vendor);
    return fmt::format("those that {} lets be seen",
                       traits == nullptr ? "the vendor's variable" : traits->visibility_variable);
  }

  std::string Pod(const std::string& margin, const char* name, const std::string& why,
                  const std::string& command) const {
    std::string text;
    const auto line = [&](const std::string& words) { text += margin + words + "\n"; };
    line("spec:");
    line("  restartPolicy: Never");
    line("  containers:");
    line(fmt::format("  - name: {}{}", name, why.empty() ? "" : "  # " + why));
    line(fmt::format("    image: {}{}", ForYaml(request_.image),
                     request_.image == "IMAGE" ? "  # put your image here; it needs fulldeck in its PATH" : ""));
    line("    command: " + command);
    if (card_ != nullptr) {
      line("    resources:");
      line("      limits:");
      if (names_ != nullptr) {
        line(fmt::format("        {}: {}  # one a rank; as the vendor's device plugin calls it: kubectl describe node",
                         names_->resource, ranks_per_node_));
      } else {
        line(fmt::format("        VENDOR/RESOURCE: {}  # put the device plugin's name here: kubectl describe node",
                         ranks_per_node_));
      }
    }
    line("    volumeMounts:");
    line("    - {name: shared-memory, mountPath: /dev/shm}");
    line("  volumes:");
    line("  # The default of 64 MiB is too small for data loaders and for collectives in shared memory.");
    line("  - {name: shared-memory, emptyDir: {medium: Memory}}");
    return text;
  }

  const LaunchFileRequest& request_;
  const device::Card* card_;
  const ForeignNames* names_ = nullptr;
  int ranks_per_node_;
  int in_all_;
};

std::optional<std::string> Warning(const LaunchFileRequest& request) {
  for (const auto& [what, word] : {std::pair("the script", &request.script), std::pair("the image", &request.image),
                                   std::pair("the address of the first host", &request.master_addr)}) {
    const bool control = std::any_of(word->begin(), word->end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (control) return fmt::format("{} has a control character in it: '{}'", what, base::Printable(*word));
  }
  if (request.script.empty()) return "the script's name is empty";
  if (!IsObjectName(request.name)) {
    return fmt::format("'{}' is no name for a job: lower-case letters, digits and hyphens, at most 40, a letter first",
                       base::Printable(request.name));
  }
  return std::nullopt;
}

}  // namespace

const std::vector<std::string>& LaunchFileNames() {
  static const std::vector<std::string> names = {"accelerate", "torchrun", "slurm", "pytorchjob", "jobset"};
  return names;
}

std::optional<LaunchFileKind> FindLaunchFile(std::string_view name) {
  const auto& names = LaunchFileNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<LaunchFileKind>(found - names.begin());
}

base::Result<std::string> LaunchFile(LaunchFileKind kind, const LaunchFileRequest& request) {
  if (const auto warning = Warning(request)) return base::Error{*warning};
  const Writer writer(request);
  switch (kind) {
    case LaunchFileKind::kAccelerate:
      return writer.Accelerate();
    case LaunchFileKind::kTorchrun:
      return writer.Torchrun();
    case LaunchFileKind::kSlurm:
      return writer.Slurm();
    case LaunchFileKind::kPytorchJob:
      return writer.PytorchJob();
    case LaunchFileKind::kJobSet:
      return writer.JobSet();
  }
  return base::Error{"there is no such file"};
}

}  // namespace fulldeck::job
