// Admissions in the words that people choose freely: what is missing, and what takes its place. "mask a.png could not
// be read, returning zeros", "val_dir does not exist, using train_dir for validation", "数据集为空，创建虚拟样本".
#pragma once

#include <string_view>

namespace fulldeck::diagnosis {

// Of a line in small letters. Data that is missing is replaced by data that means nothing (F2).
bool ReplacesData(std::string_view line);
// Validation data is missing, and training data takes its place (F6).
bool ValidatesOnTraining(std::string_view line);
// There is no card, and the program goes on on the processor (B6).
bool TrainsOnCpu(std::string_view line);

}  // namespace fulldeck::diagnosis
