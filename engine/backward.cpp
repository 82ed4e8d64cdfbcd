// The backward pass: visits recorded ops from the last to the first and is the one place where
// gradients are checked and added up.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/anomaly.h"
#include "engine/node.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// The first gradient of a tensor is moved in, later ones are added: in place where nobody else
// sees the sum.
void accumulate(Tensor& sum, Tensor gradient) {
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (is_unshared(sum)) {
    add_(sum, gradient);
  } else {
    sum = add(sum, gradient);
  }
}

void accumulate_part(Tensor& sum, const Edge& edge, const Tensor& gradient) {
  if (!sum.defined()) {
    sum = zeros(edge.shape, edge.dtype);
  } else if (!is_unshared(sum)) {
    sum = clone(sum);
  }
  add_(as_strided(sum, gradient.shape(), edge.part->strides, edge.part->offset), gradient);
}

Tensor apply_hooks(const std::vector<Hook>& hooks, Tensor gradient) {
  for (const Hook& hook : hooks) {
    if (Tensor changed = hook(gradient); changed.defined()) {
      CHARGRAD_CHECK(changed.shape() == gradient.shape(),
                     "register_hook: a hook must keep the gradient's shape ", gradient.shape(),
                     ", got ", changed.shape());
      gradient = changed.to(gradient.dtype());
    }
  }
  return gradient;
}

void add_to_grad(TensorImpl& leaf, Tensor gradient) {
  if (leaf.grad.defined()) {
    add_(leaf.grad, gradient);
  } else if (is_unshared(gradient)) {
    leaf.grad = std::move(gradient);
  } else {
    leaf.grad = clone(gradient);
  }
}

class BackwardPass {
 public:
  BackwardPass(bool retain_graph, const std::vector<Tensor>& captures)
      : retain_graph_(retain_graph), capturing_(!captures.empty()), captured_(captures.size()) {
    for (size_t i = 0; i < captures.size(); ++i) {
      capture_index_[key_of(captures[i])].push_back(i);
    }
  }

  Grads run(const std::vector<Tensor>& roots, const Grads& root_grads) {
    collect(roots);
    for (size_t i = 0; i < roots.size(); ++i) {
      Edge edge;
      edge.node = roots[i].grad_fn();
      edge.leaf = roots[i].shared_impl();
      deliver(edge, root_grads[i]);
    }
    for (std::shared_ptr<Node>& node : order_) {
      visit(*node);
      node.reset();  // frees what only the graph kept alive
    }
    return std::move(captured_);
  }

 private:
  // A tensor's place in the graph: its op, or itself if it is a leaf.
  static const void* key_of(const Tensor& x) {
    return x.grad_fn() ? static_cast<const void*>(x.grad_fn().get())
                       : static_cast<const void*>(x.impl());
  }

  // Fills order_ (last op first) and counts the gradients that each leaf will be offered.
  void collect(const std::vector<Tensor>& roots) {
    std::unordered_set<const Node*> seen;
    std::vector<std::shared_ptr<Node>> stack;
    const auto reach = [&](const std::shared_ptr<Node>& node, const TensorImpl* leaf) {
      if (node && seen.insert(node.get()).second) {
        stack.push_back(node);
      } else if (leaf != nullptr && !node) {
        ++leaf_offers_[leaf];
      }
    };
    for (const Tensor& root : roots) {
      reach(root.grad_fn(), root.impl());
    }
    while (!stack.empty()) {
      const std::shared_ptr<Node> node = std::move(stack.back());
      stack.pop_back();
      CHARGRAD_CHECK(!node->freed, "backward: the graph at op '", node->op,
                     "' was freed by an earlier backward; pass retain_graph to keep it");
      for (const Edge& edge : node->edges) {
        reach(edge.node, edge.leaf.get());
      }
      order_.push_back(node);
    }
    std::sort(order_.begin(), order_.end(),
              [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
    if (capturing_) {
      find_needed();
    }
  }

  // With captures, only the ops on a way to a captured tensor need to run.
  void find_needed() {
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
      const bool leads =
          std::any_of((*node)->edges.begin(), (*node)->edges.end(), [this](const Edge& edge) {
            const void* key = edge.node ? static_cast<const void*>(edge.node.get())
                                        : static_cast<const void*>(edge.leaf.get());
            return capture_index_.count(key) > 0 || needed_.count(edge.node.get()) > 0;
          });
      if (leads) {
        needed_.insert(node->get());
      }
    }
  }

  void deliver(const Edge& edge, Tensor gradient) {
    const void* const key = edge.node ? static_cast<const void*>(edge.node.get())
                                      : static_cast<const void*>(edge.leaf.get());
    if (gradient.defined() && edge.part) {
      accumulate_part(pending_[key], edge, gradient);
    } else if (gradient.defined()) {
      accumulate(pending_[key], std::move(gradient));
    }
    if (!edge.node && --leaf_offers_[edge.leaf.get()] == 0) {
      finish_leaf(*edge.leaf);
    }
  }

  void finish_leaf(TensorImpl& leaf) {
    auto found = pending_.find(&leaf);
    if (found == pending_.end()) {
      return;
    }
    Tensor gradient = std::move(found->second);
    pending_.erase(found);
    if (capturing_) {
      if (capture_index_.count(&leaf) > 0) {
        capture(&leaf, apply_hooks(leaf.hooks, std::move(gradient)));
      }
      return;
    }
    if (!leaf.hooks.empty()) {
      gradient = apply_hooks(leaf.hooks, std::move(gradient));
    }
    add_to_grad(leaf, std::move(gradient));
  }

  void capture(const void* key, const Tensor& gradient) {
    if (auto found = capture_index_.find(key); found != capture_index_.end()) {
      for (const size_t i : found->second) {
        captured_[i] = gradient;
      }
    }
  }

  void visit(Node& node) {
    const profile::BackwardScope scope(node.op, node.mark);
    Tensor dy;
    if (auto found = pending_.find(&node); found != pending_.end()) {
      dy = std::move(found->second);
      pending_.erase(found);
    }
    const bool wanted = !capturing_ || needed_.count(&node) > 0;
    if (dy.defined() && (wanted || capture_index_.count(&node) > 0)) {
      dy = apply_hooks(node.hooks, std::move(dy));
      capture(&node, dy);
      if (const auto output = node.retain_grad.lock(); output && !capturing_) {
        output->grad = output->grad.defined() ? add(output->grad, dy) : clone(dy);
      }
    }
    Grads grads(node.edges.size());
    if (dy.defined() && wanted) {
      grads = call(node, dy);
      dy = Tensor();  // a gradient may have taken its memory
    }
    for (size_t i = 0; i < node.edges.size(); ++i) {
      if (node.edges[i].node || node.edges[i].leaf) {
        deliver(node.edges[i], std::move(grads[i]));
      }
    }
    if (!retain_graph_) {
      node.free();
    }
  }

  Grads call(Node& node, const Tensor& dy) const {
    Grads grads = node.gradients(dy, /*is_last_use=*/!retain_graph_);
    CHARGRAD_CHECK(grads.size() == node.edges.size(), "backward: op '", node.op, "' returned ",
                   grads.size(), " gradients for ", node.edges.size(), " inputs");
    for (size_t i = 0; i < grads.size(); ++i) {
      const Edge& edge = node.edges[i];
      if (!grads[i].defined() || !(edge.node || edge.leaf)) {
        continue;
      }
      CHARGRAD_CHECK(grads[i].shape() == (edge.part ? node.shape : edge.shape), "backward: op '",
                     node.op, "' returned a gradient of shape ", grads[i].shape(), " for input ", i,
                     " of shape ", edge.shape);
      if (grads[i].dtype() != edge.dtype) {
        grads[i] = grads[i].to(edge.dtype);
      }
      CHARGRAD_CHECK(!anomaly_enabled() || !any_non_finite(grads[i]), "detect_anomaly: op '",
                     node.op, "' returned a non-finite gradient for input ", i, " of shape ",
                     edge.shape);
    }
    return grads;
  }

  const bool retain_graph_;
  const bool capturing_;
  std::vector<std::shared_ptr<Node>> order_;
  std::unordered_set<const Node*> needed_;
  std::unordered_map<const void*, Tensor> pending_;
  std::unordered_map<const TensorImpl*, int64_t> leaf_offers_;
  std::unordered_map<const void*, std::vector<size_t>> capture_index_;
  Grads captured_;
};

// The gradient to start from: the one given, or 1 for a single element.
Tensor root_gradient(const char* op, const Tensor& root, const Tensor& gradient) {
  CHARGRAD_CHECK(root.defined() && root.requires_grad(), op,
                 ": the tensor does not require grad and no op made it from one that does");
  if (!gradient.defined()) {
    CHARGRAD_CHECK(root.numel() == 1, op,
                   ": a gradient must be given unless the tensor has one element, got shape ",
                   root.shape());
    return ones(root.shape(), root.dtype());
  }
  CHARGRAD_CHECK(gradient.shape() == root.shape(), op,
                 ": the gradient must have the tensor's shape ", root.shape(), ", got ",
                 gradient.shape());
  return gradient.detach().to(root.dtype());
}

}  // namespace

Grads run_backward(const std::vector<Tensor>& roots, const Grads& root_grads, bool retain_graph,
                   const std::vector<Tensor>& captures) {
  const NoGradGuard no_grad;
  return BackwardPass(retain_graph, captures).run(roots, root_grads);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  run_backward({*this}, {root_gradient("backward", *this, gradient)}, retain_graph, {});
}

Grads grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
           const Grads& grad_outputs, bool retain_graph, bool allow_unused) {
  CHARGRAD_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(),
                 "grad: grad_outputs must have one tensor per output, got ", grad_outputs.size(),
                 " for ", outputs.size());
  CHARGRAD_CHECK(!inputs.empty(), "grad: at least one input is required");
  for (size_t i = 0; i < inputs.size(); ++i) {
    CHARGRAD_CHECK(inputs[i].defined() && inputs[i].requires_grad(), "grad: input ", i,
                   " does not require grad");
  }
  Grads seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    seeds.push_back(
        root_gradient("grad", outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i]));
  }
  Grads result = run_backward(outputs, seeds, retain_graph, inputs);
  for (size_t i = 0; i < result.size(); ++i) {
    CHARGRAD_CHECK(allow_unused || result[i].defined(), "grad: input ", i, " of shape ",
                   inputs[i].shape(), " was not used to compute the outputs");
  }
  return result;
}

}  // namespace chargrad
