// One recorded op in the graph. For autograd.cpp and tensor.cpp; everyone else uses autograd.h.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/autograd.h"
#include "engine/profile.h"
#include "engine/tensor_impl.h"

namespace chargrad {

// The place of a gradient within a contiguous, larger one.
struct Part {
  Shape strides;
  int64_t offset = 0;
};

// Where an input's gradient goes: to the op that made the input, or to the leaf itself; to
// neither where the input wants none.
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<TensorImpl> leaf;
  Shape shape;
  DType dtype = kFloat32;
  std::optional<Part> part;  // the gradient is only this part of the input's; the rest is zero
};

// Owned by the tensor that the op made and by the edges of later ops.
struct Node {
  Node(const char* op_name, Saved saved_tensors, BackwardFn backward_fn);
  // Takes the graph below apart in a loop rather than by recursion.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // What fn gives; the last use of what was saved is told it.
  Grads gradients(const Tensor& dy, bool is_last_use);

  // Drops what backward needed; a later backward through here is an error.
  void free();

  const char* op;
  uint64_t sequence;  // later ops have larger ones
  std::vector<Edge> edges;
  Saved saved;
  BackwardFn fn;
  RecomputeFn recompute;  // null where the op has none
  bool freed = false;
  profile::Mark mark;
  Shape shape;  // of the op's output
  DType dtype = kFloat32;
  std::vector<Hook> hooks;                // of the op's output
  std::weak_ptr<TensorImpl> retain_grad;  // the output, if it keeps its gradient
};

// Runs backward from `roots`. With captures, fills one gradient per captured tensor and touches
// no .grad; without, adds into the .grad of every leaf reached.
Grads run_backward(const std::vector<Tensor>& roots, const Grads& root_grads, bool retain_graph,
                   const std::vector<Tensor>& captures);

}  // namespace chargrad
