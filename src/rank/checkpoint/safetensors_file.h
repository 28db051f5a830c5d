// A safetensors file from any source: the header is checked, the data is read as is. Such a file has no checksums; to
// read fulldeck's own checkpoints, use CheckpointReader.
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

  // Reads the data of header.tensors[tensor] into `into`, which has space for its bytes.
  base::Result<void> Read(std::size_t tensor, void* into) const;
};

}  // namespace fulldeck::checkpoint
