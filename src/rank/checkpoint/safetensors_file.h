// A safetensors file that somebody else may have written: header checked, data read as they are. There are no checksums
// in such a file; a checkpoint of ours is read with CheckpointReader.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/files.h"
#include "checkpoint/safetensors.h"

namespace fulldeck::checkpoint {

struct SafetensorsFile {
  SafetensorsHeader header;
  std::unique_ptr<ReadableFile> file;

  // The message names the path.
  static base::Result<SafetensorsFile> Open(Files& files, const std::string& path);

  // The data of header.tensors[tensor], into room for its bytes.
  base::Result<void> Read(std::size_t tensor, void* into) const;
};

}  // namespace fulldeck::checkpoint
