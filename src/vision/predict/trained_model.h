// Finds what a prediction needs in the output of a job: the checkpoint, its weights, the config that made it, and the
// names of its classes. Everything is validated before use; checksums cover every byte of the weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace fulldeck::predict {

struct TrainedModel {
  std::string folder;  // of the checkpoint
  std::uint64_t step = 0;
  std::optional<double> score;
  std::string weights_path;  // model.safetensors, or ema.safetensors if is_ema
  bool is_ema = false;       // whether the weights are EMA weights
  config::Config config;
  std::vector<std::string> classes;  // one per class of the model; "class 7" if the job has no names
  std::vector<std::string> notes;    // messages for the user: damaged checkpoints that were skipped
};

// `path`: the folder of a checkpoint, a folder of checkpoints, or a job folder (work_dirs/NAME). Of several
// checkpoints, takes the one with the best score (ties, and checkpoints without a score: the newest), or with `newest`
// the newest one. Skips damaged checkpoints; one that `path` names directly is an error. The config is the job's
// recipe.resolved. The class names are those of the checkpoint's text "classes" (one per line), otherwise of the
// config, otherwise of the job's trained_with.txt ("classes = building, road").
base::Result<TrainedModel> FindTrainedModel(const std::string& path, bool newest);

}  // namespace fulldeck::predict
