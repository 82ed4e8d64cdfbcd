// What a Tensor points at. For the engine's own files; everyone else uses Tensor.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace chargrad {

struct TensorImpl {
  std::shared_ptr<Storage> storage;
  Shape shape;
  Shape strides;       // in elements
  int64_t offset = 0;  // in elements
  int64_t numel = 0;
  DType dtype = kFloat32;
  bool contiguous = false;

  bool requires_grad = false;     // of a leaf; a tensor with a grad_fn always does
  std::shared_ptr<Node> grad_fn;  // the op that made this tensor, or null
  Tensor grad;
  std::vector<Hook> hooks;  // of a leaf; others keep theirs in the node

  static Tensor wrap(std::shared_ptr<TensorImpl> impl) { return Tensor(std::move(impl)); }
};

}  // namespace chargrad
