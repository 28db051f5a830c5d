// Detects admissions in free text: something is missing, and something else replaces it. "mask a.png could not be read,
// returning zeros", "val_dir does not exist, using train_dir for validation", "数据集为空，创建虚拟样本".
#pragma once

#include <string_view>

namespace fulldeck::diagnosis {

// `line` is in lower case. Missing data is replaced by meaningless data (F2).
bool ReplacesData(std::string_view line);
// Missing validation data is replaced by training data (F6).
bool ValidatesOnTraining(std::string_view line);
// There is no card, and the program continues on the CPU (B6).
bool TrainsOnCpu(std::string_view line);

}  // namespace fulldeck::diagnosis
