// Reads one checkpoint and uses only data whose checksums match.
//
// Open() checks everything except the tensors' data: the manifest, the length of every file, the headers, state.json.
// ReadTensor() and Verify() check the data. Messages name the file and the tensor. After Open() the const methods are
// thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/scalar_state.h"

namespace fulldeck::checkpoint {

struct FoundCheckpoint {
  std::uint64_t step = 0;
  std::string folder;  // name in the directory
};

// Lists checkpoints by name, newest first, without checking them. A directory that does not exist has none.
base::Result<std::vector<FoundCheckpoint>> ListCheckpoints(Files& files, const std::string& directory);

class CheckpointReader {
 public:
  struct PartReader {
    std::string name;  // "model"
    std::string path;
    SafetensorsHeader header;
    std::vector<std::uint64_t> hashes;  // one per entry of header.tensors
    std::unique_ptr<ReadableFile> file;
  };

  // `files` is used only during the call.
  static base::Result<CheckpointReader> Open(Files& files, const std::string& folder);

  const Manifest& manifest() const { return manifest_; }
  const ScalarState& scalars() const { return scalars_; }
  const std::vector<PartReader>& parts() const { return parts_; }
  const PartReader* Find(std::string_view part) const;

  // Reads the data of one tensor into `into`, which has space for its bytes. After an error, the contents of `into` are
  // undefined.
  base::Result<void> ReadTensor(const PartReader& part, std::size_t tensor, void* into) const;

  struct TensorRequest {
    const PartReader* part = nullptr;
    std::size_t tensor = 0;
    void* into = nullptr;  // null: only verify
  };
  // Reads many tensors, on several threads. Returns the error of the first bad tensor in the order given.
  base::Result<void> ReadTensors(const std::vector<TensorRequest>& requests) const;

  // Reads the data of all tensors, or of one share of them, and discards it.
  base::Result<void> Verify(std::size_t share = 0, std::size_t shares = 1) const;

 private:
  Manifest manifest_;
  ScalarState scalars_;
  std::vector<PartReader> parts_;
};

// Number of CPUs that this thread may use, at most `most`, at least 1.
unsigned UsefulThreads(unsigned most);

}  // namespace fulldeck::checkpoint
