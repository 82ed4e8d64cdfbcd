#include "nn/containers.h"

namespace chargrad::nn {

Sequential::Sequential(std::vector<std::unique_ptr<Layer>> layers) : layers_(std::move(layers)) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    register_module(std::to_string(i), *layers_[i]);
  }
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (const auto& layer : layers_) {
    y = layer->forward(y);
  }
  return y;
}

}  // namespace chargrad::nn
