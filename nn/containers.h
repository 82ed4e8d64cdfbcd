// Sequential and ModuleList: modules under the names "0", "1", ...
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace chargrad::nn {

// Layers one after the other. As torch.nn.Sequential.
class Sequential : public Layer {
 public:
  explicit Sequential(std::vector<std::unique_ptr<Layer>> layers);
  Tensor forward(const Tensor& x) const override;

  size_t size() const { return layers_.size(); }
  Layer& operator[](size_t i) const { return *layers_.at(i); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

// Layers made one after the other, in the order in which they draw their parameters:
// sequential(std::make_unique<Linear>(4, 8), ...) would leave that order to the compiler.
//   Sequential mlp(Layers().add<Linear>(4, 8).add<ReLU>().add<Linear>(8, 2).take());
class Layers {
 public:
  template <class L, class... Args>
  Layers& add(Args&&... args) {
    layers_.push_back(std::make_unique<L>(std::forward<Args>(args)...));
    return *this;
  }
  std::vector<std::unique_ptr<Layer>> take() { return std::move(layers_); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

// A list of modules of one type, built in order. As torch.nn.ModuleList.
template <class M>
class ModuleList : public Module {
 public:
  template <class... Args>
  M& append(Args&&... args) {
    modules_.push_back(std::make_unique<M>(std::forward<Args>(args)...));
    register_module(std::to_string(modules_.size() - 1), *modules_.back());
    return *modules_.back();
  }

  size_t size() const { return modules_.size(); }
  M& operator[](size_t i) const { return *modules_.at(i); }

 private:
  std::vector<std::unique_ptr<M>> modules_;
};

}  // namespace chargrad::nn
