// Module: parameters, buffers and submodules under names, as torch.nn.Module.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/profile.h"
#include "engine/tensor.h"

namespace chargrad::nn {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// A module owns its tensors and submodules as plain members and registers each in its
// constructor; the order of registration is the order of names. It can be neither copied nor
// moved, because the registry points at the members. Not thread-safe.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Own parameters first, then the submodules', with names as in "mlp.c_fc.weight". A tensor
  // registered twice (a tied weight) appears once, under its first name.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;
  NamedTensors named_buffers() const;

  // This module under the name "" and all below, with names as in "mlp.c_fc"; parents first.
  std::vector<std::pair<std::string, const Module*>> named_modules() const;

  // Parameters and buffers, a tied weight under each of its names.
  NamedTensors state_dict() const;

  // Copies values in, converted to the module's dtypes. Throws std::invalid_argument, and changes
  // nothing, where a name is missing (one of its tied names suffices), unexpected or of another
  // shape; not strict, only for another shape.
  void load_state_dict(const NamedTensors& state, bool strict = true);

  // Training mode, here and below: dropout is on. Starts on.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  // Drops the gradients of all parameters.
  void zero_grad();

  // Converts floating parameters and buffers, gradients dropped. The tensors are replaced: make
  // optimizers afterwards.
  void to(DType dtype);

  // Calls f for every submodule, the deeper ones first, in order of registration, then for this
  // one; as torch.nn.Module.apply.
  void apply(const std::function<void(Module&)>& f);

 protected:
  // Registers a member under a name without dots; a parameter is made to require grad. An
  // undefined tensor (a bias that is switched off) is left out.
  void register_parameter(std::string name, Tensor& member);
  void register_buffer(std::string name, Tensor& member);
  void register_module(std::string name, Module& member);

 private:
  struct Entry {
    std::string name;
    Tensor* tensor;
    bool is_parameter;
  };
  // Calls f(full name, entry) for every registered tensor, own ones first.
  void visit(const std::string& prefix,
             const std::function<void(const std::string&, const Entry&)>& f) const;
  NamedTensors named(bool parameters) const;

  std::vector<Entry> tensors_;
  std::vector<std::pair<std::string, Module*>> modules_;
  bool training_ = true;
};

// A module from one tensor to one tensor; what Sequential chains.
class Layer : public Module {
 public:
  virtual Tensor forward(const Tensor& x) const = 0;
  // Called so, a layer is a scope of a profile that knows its name.
  Tensor operator()(const Tensor& x) const {
    const profile::Scope scope(profile::Object{static_cast<const Module*>(this)});
    return forward(x);
  }
};

}  // namespace chargrad::nn
