// The implementation of State, with its two directions: reading the state of the training objects (StateSnapshot) and
// restoring it (Loading).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "checkpoint/background_saver.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quoting.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scalar_state.h"
#include "checkpoint/staging_buffer.h"
#include "fulldeck/checkpoint.h"
#include "runtime/checkpoint/checkpoint_tensor.h"

namespace fulldeck::runtime {

// On the rank that saves. The tensors are references to the live ones.
struct StateSnapshot {
  struct Part {
    std::string name;
    std::vector<SavedTensor> tensors;
  };
  std::vector<Part> parts;
  checkpoint::ScalarState scalars;
};

// On every rank. First all entries report what does not match; then, if no rank reported anything, all load.
class Loading {
 public:
  Loading(const checkpoint::CheckpointReader& reader, const Team& team) : reader_(reader), team_(team) {}

  const checkpoint::CheckpointReader& reader() const { return reader_; }
  const Team& team() const { return team_; }
  std::vector<std::string>& problems() { return problems_; }

  // From state.json. Null if it is missing or has another type, which is added to the problems.
  template <typename T>
  const T* Scalar(const std::string& name) {
    const auto found = reader_.scalars().find(name);
    const T* value = found == reader_.scalars().end() ? nullptr : std::get_if<T>(&found->second);
    if (value == nullptr) problems_.push_back("\"" + name + "\" is not in the checkpoint, or of another kind.");
    return value;
  }

  // The index of a tensor in a file; nullopt if it is not there.
  std::optional<std::size_t> Find(const std::string& part, const std::string& tensor);

  // Reads a tensor of the checkpoint into `target`, which has its shape and type. Tensors in plain memory are read
  // together by Finish(), others immediately. Throws an Error if the data turns out to be corrupt.
  void Read(const std::string& part, std::size_t tensor, const at::Tensor& target);
  void Finish();

 private:
  const checkpoint::CheckpointReader& reader_;
  const Team& team_;
  std::vector<std::string> problems_;
  std::vector<checkpoint::CheckpointReader::TensorRequest> requests_;
  std::vector<at::Tensor> held_;
  std::map<std::string, std::map<std::string, std::size_t>> places_;
};

}  // namespace fulldeck::runtime

namespace fulldeck {

class State::Impl {
 public:
  struct Entry {
    std::string name;
    std::function<void(runtime::StateSnapshot&)> save;
    std::function<void(runtime::Loading&)> check;
    std::function<void(runtime::Loading&)> load;
    std::function<std::uint64_t()> bytes_to_come;  // of tensors that will be allocated later; may be empty
  };
  struct RankEntry {
    std::string name;
    std::function<std::string(const Team&)> save;
    std::function<void(const std::vector<std::string>&, runtime::Loading&)> load;
  };

  // Throws an Error for a duplicate or invalid name.
  void TakeName(const std::string& name);
  // The names of the parameters in the modules of this state.
  std::map<const void*, std::string> NamesOfParameters() const;

  std::vector<Entry> entries;
  std::vector<RankEntry> rank_entries;
  std::vector<std::pair<std::string, torch::nn::Module*>> modules;
  std::vector<std::string> names;
};

}  // namespace fulldeck
