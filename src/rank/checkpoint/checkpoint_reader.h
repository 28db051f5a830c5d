// Reads one checkpoint and believes nothing that its sums do not vouch for.
//
// Open() checks everything but the tensors' data: the manifest, the length of every file, the headers, state.json.
// ReadTensor() and Verify() check the data. Messages name the file and the tensor. After Open() any thread may call the
// const methods.
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
  std::string folder;  // a name in the directory
};

// What is there by name, newest first: whether it is good is not known yet. A directory that does not exist has none.
base::Result<std::vector<FoundCheckpoint>> ListCheckpoints(Files& files, const std::string& directory);

class CheckpointReader {
 public:
  struct PartReader {
    std::string name;  // "model"
    std::string path;
    SafetensorsHeader header;
    std::vector<std::uint64_t> hashes;  // of header.tensors
    std::unique_ptr<ReadableFile> file;
  };

  // `files` is used here only.
  static base::Result<CheckpointReader> Open(Files& files, const std::string& folder);

  const Manifest& manifest() const { return manifest_; }
  const ScalarState& scalars() const { return scalars_; }
  const std::vector<PartReader>& parts() const { return parts_; }
  const PartReader* Find(std::string_view part) const;

  // The data of one tensor into `into`, which has room for its bytes. On an error the bytes there are of no use.
  base::Result<void> ReadTensor(const PartReader& part, std::size_t tensor, void* into) const;

  struct TensorRequest {
    const PartReader* part = nullptr;
    std::size_t tensor = 0;
    void* into = nullptr;  // null: only verified
  };
  // Many of them, on several threads. The first bad tensor, in the order given, is the error.
  base::Result<void> ReadTensors(const std::vector<TensorRequest>& requests) const;

  // Reads the data of all tensors, or of one share of them, and keeps nothing.
  base::Result<void> Verify(std::size_t share = 0, std::size_t shares = 1) const;

 private:
  Manifest manifest_;
  ScalarState scalars_;
  std::vector<PartReader> parts_;
};

// Processors that this thread may use, at most `most`, at least 1.
unsigned UsefulThreads(unsigned most);

}  // namespace fulldeck::checkpoint
