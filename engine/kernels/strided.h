// Walking N arrays over one index space of any rank, each with strides of its own. Holds no
// arithmetic.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/kernels/chunks.h"

namespace chargrad::kernels {

// An index space and N operands in it. Dims of size 1 are dropped and neighbours that every
// operand walks as one are merged, so that a contiguous tensor of any rank is a single run, and a
// bias or a scalar beside it an inner loop with stride 1 or 0. Strides count elements; 0 repeats.
// By custom operand 0 is the output.
template <int N>
class Strided {
 public:
  using Offsets = std::array<int64_t, N>;
  using StrideLists = std::array<std::span<const int64_t>, N>;
  struct Dim {
    int64_t size;
    Offsets stride;
  };

  // Requires: each list of strides is as long as `sizes` (an operand that is broadcast has
  // stride 0 where it repeats).
  Strided(std::span<const int64_t> sizes, const StrideLists& strides) {
    dims_.reserve(sizes.size() + 1);
    for (size_t d = 0; d < sizes.size(); ++d) {
      Dim dim{sizes[d], {}};
      for (size_t k = 0; k < N; ++k) {
        dim.stride[k] = strides[k][d];
      }
      push(dim);
    }
    close();
  }

  // n elements, all operands contiguous.
  static Strided contiguous(int64_t n) {
    Dim dim{n, {}};
    dim.stride.fill(1);
    return Strided(dim);
  }

  int64_t numel() const { return numel_; }
  // At least one; outermost first.
  const std::vector<Dim>& dims() const { return dims_; }
  const Dim& inner() const { return dims_.back(); }
  // Whether every operand is contiguous, so that the space is one run of numel().
  bool is_one_run() const {
    const Offsets& stride = inner().stride;
    return dims_.size() == 1 &&
           std::all_of(stride.begin(), stride.end(), [](int64_t step) { return step == 1; });
  }

  // Calls f(offsets, n) for the pieces of innermost runs that make up the row-major positions
  // [begin, end): n elements from `offsets` on, each operand stepping by inner().stride.
  template <class F>
  void for_each_run(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) {
      return;
    }
    Offsets at{};
    if (dims_.size() == 1) {
      step(at, dims_[0], begin);
      f(std::as_const(at), end - begin);
      return;
    }
    std::vector<int64_t> index(dims_.size());
    int64_t rest = begin;
    for (size_t d = dims_.size(); d-- > 0;) {
      index[d] = rest % dims_[d].size;
      rest /= dims_[d].size;
      step(at, dims_[d], index[d]);
    }
    for (int64_t left = end - begin;;) {
      const int64_t n = std::min(left, inner().size - index.back());
      f(std::as_const(at), n);
      left -= n;
      if (left == 0) {
        return;
      }
      step(at, inner(), -index.back());
      index.back() = 0;
      for (size_t d = dims_.size() - 1; d-- > 0;) {
        step(at, dims_[d], 1);
        if (++index[d] < dims_[d].size) {
          break;
        }
        step(at, dims_[d], -dims_[d].size);
        index[d] = 0;
      }
    }
  }

  // The same over the whole space, chunks of kChunkElements elements on the thread pool.
  template <class F>
  void parallel_runs(F&& f) const {
    parallel_chunks(numel_, kChunkElements,
                    [&](int64_t begin, int64_t end) { for_each_run(begin, end, f); });
  }

 private:
  explicit Strided(const Dim& dim) : dims_{dim}, numel_(dim.size) {}

  static void step(Offsets& at, const Dim& dim, int64_t count) {
    for (size_t k = 0; k < N; ++k) {
      at[k] += count * dim.stride[k];
    }
  }

  void push(const Dim& dim) {
    numel_ *= dim.size;
    if (dim.size == 1) {
      return;
    }
    if (!dims_.empty()) {
      Dim& outer = dims_.back();
      bool one_walk = true;
      for (size_t k = 0; k < N; ++k) {
        one_walk = one_walk && outer.stride[k] == dim.stride[k] * dim.size;
      }
      if (one_walk) {
        outer = {outer.size * dim.size, dim.stride};
        return;
      }
    }
    dims_.push_back(dim);
  }

  void close() {
    if (numel_ == 0 || dims_.empty()) {
      Dim dim{numel_, {}};
      dim.stride.fill(1);
      dims_.assign(1, dim);
    }
  }

  std::vector<Dim> dims_;
  int64_t numel_ = 1;
};

namespace detail {

// How a dense inner loop reads one operand: the next element, or the same again.
template <class S>
struct Dense {
  const S* x;
  S operator[](int64_t i) const { return x[i]; }
};
template <class S>
struct Same {
  S value;
  S operator[](int64_t /*i*/) const { return value; }
};
template <class Y, class F, class... In>
void map_dense(Y* y, int64_t n, F f, In... in) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = f(in[i]...);
  }
}

// Turns the operands from `K` on into Dense or Same, one branch each, then runs the loop.
template <size_t K, class Y, class F, class Ins, class Strides, class... Bound>
void map_bind(Y* y, int64_t n, F f, const Ins& ins, const Strides& strides, Bound... bound) {
  if constexpr (K == std::tuple_size_v<Ins>) {
    map_dense(y, n, f, bound...);
  } else {
    const auto* x = std::get<K>(ins);
    using S = std::remove_cv_t<std::remove_pointer_t<decltype(x)>>;
    if (strides[K + 1] == 1) {
      map_bind<K + 1>(y, n, f, ins, strides, bound..., Dense<S>{x});
    } else {
      map_bind<K + 1>(y, n, f, ins, strides, bound..., Same<S>{*x});
    }
  }
}

template <class Y, class F, class Ins, class Strides, size_t... K>
void map_stepped(Y* y, int64_t n, F f, const Ins& ins, const Strides& strides,
                 std::index_sequence<K...> /*operands*/) {
  for (int64_t i = 0; i < n; ++i) {
    y[i * strides[0]] = f(std::get<K>(ins)[i * strides[K + 1]]...);
  }
}

}  // namespace detail

// y = f(x...) at every position of `space`, whose operands are y, x.... Inner loops where y has
// stride 1 and each x stride 1 or 0 vectorise. y may be one of the x (same strides): every element
// is read before it is written; otherwise they must not overlap.
template <class Y, class F, class... X>
void map(const Strided<static_cast<int>(1 + sizeof...(X))>& space, Y* y, F f, const X*... x) {
  const auto& strides = space.inner().stride;
  bool simple = strides[0] == 1;
  for (size_t k = 1; k < strides.size(); ++k) {
    simple = simple && (strides[k] == 0 || strides[k] == 1);
  }
  const std::tuple<const X*...> base{x...};
  space.parallel_runs([&](const auto& at, int64_t n) {
    const auto ins = [&]<size_t... K>(std::index_sequence<K...>) {
      return std::tuple<const X*...>{(std::get<K>(base) + at[K + 1])...};
    }
    (std::index_sequence_for<X...>{});
    if (simple) {
      detail::map_bind<0>(y + at[0], n, f, ins, strides);
    } else {
      detail::map_stepped(y + at[0], n, f, ins, strides, std::index_sequence_for<X...>{});
    }
  });
}

}  // namespace chargrad::kernels
