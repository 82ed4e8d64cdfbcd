// The graph of recorded ops: how an op enters it, and how gradients are taken from it.
// Backward, and dropping a graph, are iterative: a chain of a million ops needs no stack.
// Not thread-safe: one graph belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/tensor.h"

namespace chargrad {

// One gradient per input, undefined where none is needed.
using Grads = std::vector<Tensor>;

class Saved;

// Makes the result of an op again from what the op saved: the same bits, outside the graph.
using RecomputeFn = std::function<Tensor(const Saved& saved)>;

// What an op keeps for its backward: data outside the graph, and the versions it had. Freed
// after backward unless the graph is retained.
class Saved {
 public:
  Saved() = default;
  explicit Saved(std::vector<Tensor> tensors);

  // Lets go of tensor i, which is `input` or a view of it, if that is large, was not changed since
  // it was made, and the op that made it can make it again (RecomputeFn) from what is kept, with at
  // most three results between; otherwise changes nothing. Requires: `input` is one of the op's
  // inputs, so that the graph holds the op that made it.
  Saved& recompute(size_t i, const Tensor& input);
  // Of the tensors that were not let go of.
  int64_t bytes() const;

  // Throws when the tensor was changed in place since it was saved. One that was let go of is taken
  // from `input` where that lives on, under the same rule, and made again otherwise, in each call:
  // use it and drop it.
  Tensor operator[](size_t i) const;
  // Memory for a gradient of the shape and dtype of x, one of the above, contiguous: x's own where
  // nobody else holds it and the graph is not retained. Its version is raised then, so that a
  // backward that is cut short cannot be repeated.
  Tensor reuse_or_empty(const Tensor& x) const;
  // Whether the op's input i wants a gradient.
  bool needs_grad(size_t i) const { return needs_grad_[i]; }

 private:
  friend struct Node;
  friend Tensor record(const char*, Tensor, const std::vector<Tensor>&, Saved,
                       std::function<Grads(const Tensor&, const Saved&)>, RecomputeFn);

  // Where a tensor comes from that was let go of.
  struct Source {
    size_t i;
    const Node* maker;  // held by an edge of the node that this belongs to
    std::weak_ptr<TensorImpl> result;
    Shape shape;  // of the tensor
  };

  const char* op_ = "";
  std::vector<Tensor> tensors_;  // undefined where there is a source
  std::vector<Source> sources_;
  std::vector<uint64_t> versions_;
  std::vector<bool> needs_grad_;
  int depth_ = 0;  // how many results must be made again, one from the other, for those let go of
  bool is_last_use_ = false;
};

// An undefined tensor may be saved; it comes back undefined.
template <class... Tensors>
Saved save(const Tensors&... tensors) {
  return Saved(std::vector<Tensor>{tensors...});
}

// dy has the output's shape and dtype and may be non-contiguous; its memory may be reused where
// nobody else holds it (reuse_or_empty). Runs with gradients switched off. Captures by value and by
// name, never a Tensor.
using BackwardFn = std::function<Grads(const Tensor& dy, const Saved& saved)>;

// Makes `y`, fresh from the kernels, the output of `op` (a string literal) on `inputs` and
// returns it. Does nothing when no input requires grad or a NoGradGuard is alive. With `recompute`,
// which must be cheap beside a product, later ops need not keep a large y.
Tensor record(const char* op, Tensor y, const std::vector<Tensor>& inputs, Saved saved,
              BackwardFn fn, RecomputeFn recompute = nullptr);

// Bytes from which on a result is made again in backward rather than kept: 4 MiB, or what a
// RecomputeGuard says; and whether y has as many.
int64_t least_recomputed();
bool is_recomputed(const Tensor& y);

// Whether ops are recorded now.
bool grad_enabled();

// While alive, ops are not recorded on this thread.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool before_;
};

// While alive, results of `least_bytes` and more are made again on this thread.
class RecomputeGuard {
 public:
  explicit RecomputeGuard(int64_t least_bytes);
  ~RecomputeGuard();
  RecomputeGuard(const RecomputeGuard&) = delete;
  RecomputeGuard& operator=(const RecomputeGuard&) = delete;

 private:
  int64_t before_;
};

// While alive, backward throws at the first gradient with a NaN or an infinity and names the op
// that returned it; so does an op whose result has a NaN although its inputs have none. As
// torch.autograd.detect_anomaly, with the forward check added.
class DetectAnomaly {
 public:
  DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool before_;
};

// Gradients of `outputs` with respect to `inputs` alone; no tensor's .grad is touched.
// grad_outputs: one per output, undefined (or left out altogether) where it has one element.
// An input that the outputs do not depend on is an error, or with allow_unused comes back
// undefined. As torch.autograd.grad, without create_graph.
Grads grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
           const Grads& grad_outputs = {}, bool retain_graph = false, bool allow_unused = false);

}  // namespace chargrad
