#include "nn/module.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/ops.h"

namespace chargrad::nn {

void Module::visit(const std::string& prefix,
                   const std::function<void(const std::string&, const Entry&)>& f) const {
  for (const Entry& entry : tensors_) {
    f(prefix + entry.name, entry);
  }
  for (const auto& [name, module] : modules_) {
    module->visit(prefix + name + ".", f);
  }
}

NamedTensors Module::named(bool parameters) const {
  NamedTensors result;
  std::set<const TensorImpl*> seen;
  visit("", [&](const std::string& name, const Entry& entry) {
    if (entry.is_parameter == parameters && seen.insert(entry.tensor->impl()).second) {
      result.emplace_back(name, *entry.tensor);
    }
  });
  return result;
}

NamedTensors Module::named_parameters() const {
  return named(/*parameters=*/true);
}
NamedTensors Module::named_buffers() const {
  return named(/*parameters=*/false);
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (const auto& [name, parameter] : named_parameters()) {
    result.push_back(parameter);
  }
  return result;
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules() const {
  std::vector<std::pair<std::string, const Module*>> result = {{"", this}};
  for (const auto& [name, child] : modules_) {
    for (const auto& [below, module] : child->named_modules()) {
      result.emplace_back(name, module);
      if (!below.empty()) {
        result.back().first.append(".").append(below);
      }
    }
  }
  return result;
}

NamedTensors Module::state_dict() const {
  NamedTensors result;
  visit("", [&](const std::string& name, const Entry& entry) {
    result.emplace_back(name, entry.tensor->detach());
  });
  return result;
}

void Module::load_state_dict(const NamedTensors& state, bool strict) {
  std::map<std::string, Tensor> given(state.begin(), state.end());
  std::vector<std::pair<Tensor, Tensor>> copies;  // member, source
  std::set<const TensorImpl*> loaded;
  std::vector<std::pair<std::string, const TensorImpl*>> absent;
  std::string wrong;
  visit("", [&](const std::string& name, const Entry& entry) {
    const auto found = given.find(name);
    if (found == given.end()) {
      absent.emplace_back(name, entry.tensor->impl());
      return;
    }
    if (found->second.shape() != entry.tensor->shape()) {
      wrong += fmt::format(" {} has shape {}, expected {};", name, found->second.shape(),
                           entry.tensor->shape());
    }
    copies.emplace_back(*entry.tensor, found->second);
    loaded.insert(entry.tensor->impl());
    given.erase(found);
  });
  if (strict) {
    for (const auto& [name, impl] : absent) {
      if (loaded.count(impl) == 0) {
        wrong += fmt::format(" {} is missing;", name);
      }
    }
    for (const auto& [name, tensor] : given) {
      wrong += fmt::format(" {} is unexpected;", name);
    }
  }
  CHARGRAD_CHECK(wrong.empty(), "load_state_dict:", wrong.substr(0, wrong.size() - 1));
  const NoGradGuard no_grad;
  for (const auto& [member, source] : copies) {
    copy_(member, source);
  }
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, module] : modules_) {
    module->train(on);
  }
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters()) {
    parameter.set_grad(Tensor());
  }
}

void Module::to(DType dtype) {
  CHARGRAD_CHECK(is_floating(dtype), "to: a module's dtype must be floating, got ",
                 dtype_name(dtype));
  std::map<const TensorImpl*, Tensor> converted;  // so that tied weights stay tied
  visit("", [&](const std::string&, const Entry& entry) {
    Tensor& member = *entry.tensor;
    if (!is_floating(member.dtype())) {
      return;
    }
    const TensorImpl* before = member.impl();
    if (converted.count(before) == 0) {
      converted[before] = clone(member.detach().to(dtype));
      converted[before].set_requires_grad(member.requires_grad());
    }
    member = converted[before];
  });
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const auto& [name, module] : modules_) {
    module->apply(f);
  }
  f(*this);
}

namespace {

void check_name(const char* what, const std::string& name, bool taken) {
  CHARGRAD_CHECK(!name.empty() && name.find('.') == std::string::npos, what,
                 ": a name must not be empty nor contain a dot, got \"", name, "\"");
  CHARGRAD_CHECK(!taken, what, ": the name \"", name, "\" is taken");
}

}  // namespace

void Module::register_parameter(std::string name, Tensor& member) {
  const auto same = [&](const Entry& entry) { return entry.name == name; };
  check_name("register_parameter", name, std::any_of(tensors_.begin(), tensors_.end(), same));
  if (member.defined()) {
    member.set_requires_grad();
    tensors_.push_back({std::move(name), &member, true});
  }
}

void Module::register_buffer(std::string name, Tensor& member) {
  const auto same = [&](const Entry& entry) { return entry.name == name; };
  check_name("register_buffer", name, std::any_of(tensors_.begin(), tensors_.end(), same));
  if (member.defined()) {
    tensors_.push_back({std::move(name), &member, false});
  }
}

void Module::register_module(std::string name, Module& member) {
  const auto same = [&](const auto& entry) { return entry.first == name; };
  check_name("register_module", name, std::any_of(modules_.begin(), modules_.end(), same));
  modules_.emplace_back(std::move(name), &member);
}

}  // namespace chargrad::nn
