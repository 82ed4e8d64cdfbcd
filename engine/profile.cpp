#include "engine/profile.h"

#include <utility>

#include "engine/tensor.h"

namespace chargrad::profile {
namespace {

// Multiplications and additions of a forward product, and how many products of that size its
// backward makes.
struct Work {
  double flops = 0;
  int backward_products = 0;
};

Work work_of(std::string_view op, const Tensor& y, const std::vector<Tensor>& inputs) {
  const auto numel = static_cast<double>(y.numel());
  if (op == "linear" || op == "gelu_linear" || op == "matmul") {
    const auto K = static_cast<double>(inputs[0].size(-1));
    return {2 * numel * K, int{inputs[0].requires_grad()} + int{inputs[1].requires_grad()}};
  }
  // q k^T and p v; every key counts, also one that a mask leaves out.
  if (op == "scaled_dot_product_attention") {
    const Tensor &q = inputs[0], &k = inputs[1];
    return {2 * numel * static_cast<double>(k.size(-2)) +
                2 * static_cast<double>(q.numel()) * static_cast<double>(k.size(-2)),
            2};
  }
  if (op == "scaled_dot_product_attention_packed") {
    return {4 * numel * static_cast<double>(y.size(1)), 2};  // y (B, T, C)
  }
  return {};
}

}  // namespace

Profiler::Profiler(Names names, size_t most_spans)
    : start_(std::chrono::steady_clock::now()),
      objects_(std::move(names)),
      most_spans_(most_spans) {
  id_of("");
}

int32_t Profiler::id_of(std::string_view name) {
  auto found = ids_.find(name);
  if (found == ids_.end()) {
    found = ids_.emplace(name, static_cast<int32_t>(names_.size())).first;
    names_.push_back(found->first);
  }
  return found->second;
}

int64_t Profiler::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

void Profiler::charge(int32_t scope, int32_t op, bool is_backward, double flops) {
  const int64_t begin = std::exchange(last_, now());
  Totals& totals = totals_[{scope, op, is_backward}];
  ++totals.calls;
  totals.nanoseconds += last_ - begin;
  totals.bytes += bytes_;
  totals.flops += flops;
  if (op != 0) {
    add_span({names_[static_cast<size_t>(op)], names_[static_cast<size_t>(scope)],
              /*is_scope=*/false, is_backward, begin, last_, bytes_, flops});
  }
  bytes_ = 0;
}

void Profiler::add_span(const Span& span) {
  if (spans_.size() < most_spans_) {
    spans_.push_back(span);
  }
}

void Profiler::begin_recording() {
  recording_since_ = last_ = now();
  bytes_ = 0;
}

void Profiler::end_recording() {
  charge_gap();
  recorded_ += last_ - recording_since_;
}

bool Profiler::enter(std::string_view scope) {
  if (backward_depth_ > 0) {
    return false;
  }
  charge_gap();
  open_.push_back({id_of(scope), last_});
  return true;
}

bool Profiler::enter_object(const void* object) {
  const auto found = objects_.find(object);
  return found != objects_.end() && enter(found->second);
}

void Profiler::leave() {
  charge_gap();
  const std::string_view name = names_[static_cast<size_t>(open_.back().name)];
  const int64_t begin = open_.back().begin;
  open_.pop_back();
  add_span({name, names_[static_cast<size_t>(scope())], /*is_scope=*/true, /*is_backward=*/false,
            begin, last_, 0, 0});
}

Mark Profiler::op(const char* name, const Tensor& y, const std::vector<Tensor>& inputs) {
  if (backward_depth_ > 0) {
    return {};
  }
  const Work work = work_of(name, y, inputs);
  charge(scope(), id_of(name), /*is_backward=*/false, work.flops);
  return {scope(), work.flops * work.backward_products};
}

void Profiler::begin_backward() {
  if (backward_depth_++ == 0) {
    charge_gap();
  }
}

void Profiler::end_backward(const char* name, const Mark& mark) {
  if (--backward_depth_ == 0) {
    charge(mark.scope, id_of(name), /*is_backward=*/true, mark.backward_flops);
  }
}

std::vector<Row> Profiler::rows() const {
  std::map<std::tuple<std::string, std::string, bool>, Totals> sorted;
  for (const auto& [key, totals] : totals_) {
    const auto [scope, op, is_backward] = key;
    sorted[{std::string(names_[static_cast<size_t>(scope)]),
            std::string(names_[static_cast<size_t>(op)]), is_backward}] = totals;
  }
  std::vector<Row> rows;
  rows.reserve(sorted.size());
  for (const auto& [key, totals] : sorted) {
    rows.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), totals});
  }
  return rows;
}

Recording::Recording(Profiler* profiler) : before_(current) {
  current = profiler;
  if (current != nullptr) {
    current->begin_recording();
  }
}

Recording::~Recording() {
  if (current != nullptr) {
    current->end_recording();
  }
  current = before_;
}

}  // namespace chargrad::profile
