// Recording, and the guards. The backward pass itself is in backward.cpp.
#include "engine/autograd.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "engine/anomaly.h"
#include "engine/node.h"
#include "engine/ops.h"
#include "engine/record_part.h"

namespace chargrad {
namespace {

thread_local bool grad_mode = true;
thread_local bool anomaly_mode = false;
// The baby GPT's results, 12 MiB and more, are above it; making them again takes 3 to 5 % of a step
// in bfloat16 (tests/bench/RESULTS.md, 2026-11-30). The CPU recipe's, 1.5 MiB at most, are below:
// its products do a third of the work for each number, and there is little memory to save.
thread_local int64_t least_recomputed_bytes = int64_t{4} << 20;

uint64_t next_sequence() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

// Switches the checks and the recording off while the checks themselves use ops.
class Unchecked {
 public:
  Unchecked() : before_(anomaly_mode) { anomaly_mode = false; }
  ~Unchecked() { anomaly_mode = before_; }
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;

 private:
  bool before_;
  NoGradGuard no_grad_;
};

bool has_nan(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && x.numel() > 0 && std::isnan(amax(x).item());
}

// The first op whose result has a NaN although its inputs have none is where a bug shows.
void check_forward(const char* op, const Tensor& y, const std::vector<Tensor>& inputs) {
  const Unchecked unchecked;
  if (!has_nan(y)) {
    return;
  }
  for (const Tensor& input : inputs) {
    if (has_nan(input)) {
      return;
    }
  }
  detail::fail_check("detect_anomaly: op '", op, "' made a NaN from inputs without one, output ",
                     y.shape());
}

}  // namespace

Saved::Saved(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  if (!grad_mode) {
    return;  // record will not keep it
  }
  versions_.reserve(tensors_.size());
  for (Tensor& x : tensors_) {
    if (x.defined()) {
      x = x.detach();
    }
    versions_.push_back(x.defined() ? x.version() : 0);
  }
}

Saved& Saved::recompute(size_t i, const Tensor& input) {
  const Node* const maker = input.grad_fn().get();
  const bool is_as_made = input.version() == 0;
  constexpr int kMostDepth = 4;  // else a chain of n ops could cost the square of n
  if (grad_mode && maker != nullptr && maker->recompute && is_as_made && is_recomputed(input) &&
      tensors_[i].storage() == input.storage() && maker->saved.depth_ < kMostDepth) {
    depth_ = std::max(depth_, maker->saved.depth_ + 1);
    sources_.push_back({i, maker, input.shared_impl(), tensors_[i].shape()});
    tensors_[i] = Tensor();
  }
  return *this;
}

int64_t Saved::bytes() const {
  int64_t sum = 0;
  for (const Tensor& x : tensors_) {
    sum += x.defined() ? x.numel() * dtype_size(x.dtype()) : 0;
  }
  return sum;
}

Tensor Saved::operator[](size_t i) const {
  Tensor x = tensors_[i];
  for (const Source& source : sources_) {
    if (source.i == i) {
      const auto result = source.result.lock();
      if (!result) {
        return source.maker->recompute(source.maker->saved).view(source.shape);
      }
      x = TensorImpl::wrap(result).detach().view(source.shape);
    }
  }
  CHARGRAD_CHECK(!x.defined() || x.version() == versions_[i], "backward: a tensor of shape ",
                 x.shape(), " saved by op '", op_, "' was changed in place since then (version ",
                 x.version(), ", saved at ", versions_[i], ")");
  return x;
}

Tensor Saved::reuse_or_empty(const Tensor& x) const {
  const bool is_whole =
      x.is_contiguous() && x.storage()->bytes() == x.numel() * dtype_size(x.dtype());
  if (!is_last_use_ || !is_whole || x.storage().use_count() > 1) {
    return empty_like(x);
  }
  x.bump_version();
  return x;
}

bool any_non_finite(const Tensor& x) {
  const Unchecked unchecked;
  return x.numel() > 0 && is_floating(x.dtype()) && !std::isfinite(amax(abs(x)).item());
}

bool anomaly_enabled() {
  return anomaly_mode;
}

bool grad_enabled() {
  return grad_mode;
}

NoGradGuard::NoGradGuard() : before_(grad_mode) {
  grad_mode = false;
}
NoGradGuard::~NoGradGuard() {
  grad_mode = before_;
}

int64_t least_recomputed() {
  return least_recomputed_bytes;
}

bool is_recomputed(const Tensor& y) {
  return y.numel() * dtype_size(y.dtype()) >= least_recomputed_bytes;
}

RecomputeGuard::RecomputeGuard(int64_t least_bytes) : before_(least_recomputed_bytes) {
  least_recomputed_bytes = least_bytes;
}
RecomputeGuard::~RecomputeGuard() {
  least_recomputed_bytes = before_;
}

DetectAnomaly::DetectAnomaly() : before_(anomaly_mode) {
  anomaly_mode = true;
}
DetectAnomaly::~DetectAnomaly() {
  anomaly_mode = before_;
}

Tensor record(const char* op, Tensor y, const std::vector<Tensor>& inputs, Saved saved,
              BackwardFn fn, RecomputeFn recompute) {
  profile::Mark mark;
  if (profile::current != nullptr) {
    mark = profile::current->op(op, y, inputs);
  }
  if (anomaly_mode) {
    check_forward(op, y, inputs);
  }
  if (!grad_mode) {
    return y;
  }
  std::vector<bool> needs_grad;
  bool any = false;
  for (const Tensor& x : inputs) {
    needs_grad.push_back(x.defined() && x.requires_grad());
    any = any || needs_grad.back();
  }
  if (!any) {
    return y;
  }
  CHARGRAD_DCHECK(y.is_leaf() && !y.requires_grad(), "record: the output of '", op,
                  "' is in the graph already");

  saved.op_ = op;
  saved.needs_grad_ = needs_grad;
  auto node = std::make_shared<Node>(op, std::move(saved), std::move(fn));
  node->recompute = std::move(recompute);
  node->shape = y.shape();
  node->dtype = y.dtype();
  node->mark = mark;
  node->edges.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (needs_grad[i]) {
      Edge& edge = node->edges[i];
      edge.node = inputs[i].grad_fn();
      edge.leaf = edge.node ? nullptr : inputs[i].shared_impl();
      edge.shape = inputs[i].shape();
      edge.dtype = inputs[i].dtype();
    }
  }
  y.impl()->grad_fn = std::move(node);
  return y;
}

Tensor record_part(const char* op, Tensor y, const Tensor& x, const Shape& strides,
                   int64_t offset) {
  y = record(op, std::move(y), {x}, Saved(),
             [](const Tensor& dy, const Saved&) -> Grads { return {dy}; });
  if (const auto& node = y.grad_fn()) {
    node->edges[0].part = Part{strides, offset};
  }
  return y;
}

Node::Node(const char* op_name, Saved saved_tensors, BackwardFn backward_fn)
    : op(op_name),
      sequence(next_sequence()),
      saved(std::move(saved_tensors)),
      fn(std::move(backward_fn)) {}

Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending;
  const auto take_edges = [&pending](Node& node) {
    for (Edge& edge : node.edges) {
      if (edge.node) {
        pending.push_back(std::move(edge.node));
      }
    }
  };
  take_edges(*this);
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() == 1) {
      take_edges(*node);  // so that its own destructor, now, finds nothing left to follow
    }
  }
}

Grads Node::gradients(const Tensor& dy, bool is_last_use) {
  saved.is_last_use_ = is_last_use;
  return fn(dy, saved);
}

void Node::free() {
  freed = true;
  fn = nullptr;
  recompute = nullptr;
  saved = Saved();
  edges.clear();
}

}  // namespace chargrad
