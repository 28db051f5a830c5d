// Files that start a training on this kind of machine with other programs: Accelerate's configuration, a torchrun
// command line, a Slurm script, Kubernetes objects. Text only, generated from the machine's inventory; comments in
// the file explain the values. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/cards/card_selection.h"

namespace fulldeck::job {

enum class LaunchFileKind { kAccelerate, kTorchrun, kSlurm, kPytorchJob, kJobSet };

// accelerate torchrun slurm pytorchjob jobset, in the order of the enumeration.
const std::vector<std::string>& LaunchFileNames();
std::optional<LaunchFileKind> FindLaunchFile(std::string_view name);

struct LaunchFileRequest {
  CardSelection selection;  // the cards and ranks of one node; all nodes are assumed to be like this one
  int nodes = 1;
  std::string script = "train.py";
  std::string image = "IMAGE";    // Kubernetes: the container's image
  std::string name = "fulldeck";  // Kubernetes and Slurm: of the job
  std::string master_addr;        // Accelerate on several nodes; empty: writes a placeholder
};

// Rejects values that one of the formats cannot represent without quoting: a control character, an empty name, a name
// that Kubernetes does not accept (lower-case letters, digits and hyphens, at most 40).
base::Result<std::string> LaunchFile(LaunchFileKind kind, const LaunchFileRequest& request);

}  // namespace fulldeck::job
