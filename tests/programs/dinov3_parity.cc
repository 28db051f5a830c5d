// Runs the backbone on the input of test_dinov3_parity.py, one folder per case:
//   shape               dim layers heads mlp gated registers patch channels  N H W
//   weights             a file or folder in Hugging Face's format
//   allowed             (optional) lines "miss NAME" and "more NAME": what the config allows
//   images.safetensors  "images" [N, channels, H, W], and "direction", of the shape of the last hidden state
// Writes outputs.safetensors: hidden.0 … hidden.L, last, pooled, and gradient.NAME of every trainable parameter, of the
// sum of direction · last. If a case fails, it writes its message to the file error instead.
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "dinov3/vision_model.h"

namespace {

using fulldeck::dinov3::Backbone;

struct Inputs : torch::nn::Module {
  Inputs(at::IntArrayRef images_shape, at::IntArrayRef direction_shape) {
    images = register_buffer("images", at::zeros(images_shape));
    direction = register_buffer("direction", at::zeros(direction_shape));
  }
  at::Tensor images, direction;
};

class Outputs {
 public:
  void Add(const std::string& name, const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach().to(at::kFloat).contiguous();
    const std::size_t bytes = static_cast<std::size_t>(plain.numel()) * sizeof(float);
    if (header_.size() > 1) header_ += ',';
    header_ += "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[";
    for (std::int64_t i = 0; i < plain.dim(); ++i) header_ += (i ? "," : "") + std::to_string(plain.size(i));
    header_ +=
        "],\"data_offsets\":[" + std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes) + "]}";
    data_.append(static_cast<const char*>(plain.const_data_ptr()), bytes);
  }
  void Write(const std::string& path) {
    header_ += '}';
    header_.resize((header_.size() + 7) / 8 * 8, ' ');
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header_.size() >> (8 * i));
    std::ofstream file(path, std::ios::binary);
    file << length << header_ << data_;
    if (!file.flush()) throw fulldeck::Error("cannot write " + path);
  }

 private:
  std::string header_ = "{";
  std::string data_;
};

void RunCase(const std::string& folder) {
  std::ifstream file(folder + "/shape");
  fulldeck::model_spec::BackboneOptions config;
  std::int64_t count = 0, height = 0, width = 0;
  file >> config.dim >> config.layers >> config.heads >> config.mlp >> config.gated >> config.registers >>
      config.patch >> config.channels >> count >> height >> width;
  if (!file) throw fulldeck::Error("cannot read " + folder + "/shape");

  Backbone backbone(config);
  fulldeck::model_spec::ModelOptions model;
  model.weights = folder + "/weights";
  std::ifstream allowed(folder + "/allowed");
  for (std::string kind, name; allowed >> kind >> name;)
    (kind == "miss" ? model.weights_may_miss : model.weights_may_have_more).push_back(name);
  fulldeck::dinov3::LoadBackbone(backbone, model);
  backbone->eval();
  const std::int64_t tokens = 1 + config.registers + (height / config.patch) * (width / config.patch);
  Inputs inputs({count, config.channels, height, width}, {count, tokens, config.dim});
  fulldeck::LoadWeights(inputs, folder + "/images.safetensors");

  Outputs outputs;
  const std::vector<at::Tensor> states = backbone->HiddenStates(inputs.images);
  for (std::size_t i = 0; i < states.size(); ++i) outputs.Add("hidden." + std::to_string(i), states[i]);
  const auto features = backbone->forward(inputs.images);
  outputs.Add("last", features.tokens);
  outputs.Add("pooled", features.pooled);
  (features.tokens * inputs.direction).sum().backward();
  for (const auto& item : backbone->named_parameters()) {
    if (item.value().grad().defined()) outputs.Add("gradient." + item.key(), item.value().grad());
  }
  outputs.Write(folder + "/outputs.safetensors");
}

}  // namespace

int main(int argc, char** argv) {
  int code = 0;
  for (int i = 1; i < argc; ++i) {
    try {
      RunCase(argv[i]);
    } catch (const std::exception& error) {
      std::ofstream(std::string(argv[i]) + "/error") << error.what();
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      code = 1;
    }
  }
  return code;
}
