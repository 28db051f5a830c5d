// What a job has left that a prediction needs: which checkpoint, with which weights of it, the config that made it, and
// the names of its classes. Nothing of it is believed before it is checked: every byte of the weights has its checksum.
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
  std::string weights_path;  // model.safetensors, or ema.safetensors where the job is_ema its weights
  bool is_ema = false;       // it is the latter
  config::Config config;
  std::vector<std::string> classes;  // one a class of the model; "class 7" where the job has left no names
  std::vector<std::string> notes;    // sentences for the person: checkpoints that are damaged and were passed over
};

// `path`: a checkpoint's folder, a folder of checkpoints, or a job's folder (work_dirs/NAME). Of several the best by
// score (of equal ones, and where none has a score, the newest), or with `newest` the newest; one that is damaged is
// passed over, but a damaged one that was named itself is an error. The config is the job's recipe.resolved. The names
// of the classes are those of the checkpoint's text "classes" (one a line), else of the config, else of the job's
// trained_with.txt ("classes = building, road").
base::Result<TrainedModel> FindTrainedModel(const std::string& path, bool newest);

}  // namespace fulldeck::predict
