// Sums, means, variances and extremes. One traversal, `reduce`, serves them all; it goes along the
// reduced dims (rows) or across them (columns), whichever is dense in memory.
#include "engine/kernels/reduce.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "engine/dtype.h"

namespace chargrad::kernels {

namespace {

// Parts of one output's elements that are reduced apart, when going along them.
constexpr int64_t kRowPart = 32768;
// The same when going across: rows of one part, and columns done side by side, whose double sums
// (4 KiB) stay in the first-level cache.
constexpr int64_t kColumnPart = 256;
constexpr int64_t kColumns = 512;
// Independent sums within a row, so that additions overlap and vectorise.
constexpr int64_t kLanes = 16;

// What is reduced: Acc, the start, how an element and how two parts are folded in. `shift` is a
// number of each output that an element is compared with (the variance's mean).
template <class S>
struct Sum {
  using Acc = std::conditional_t<std::is_same_v<S, int64_t>, uint64_t, double>;
  static constexpr bool kShifted = false;
  static constexpr Acc kStart = 0;
  static Acc fold(Acc acc, S x, Acc /*shift*/) { return acc + static_cast<Acc>(x); }
  static Acc join(Acc a, Acc b) { return a + b; }
};

template <class S>
struct SquaredDistance {
  using Acc = double;
  static constexpr bool kShifted = true;
  static constexpr Acc kStart = 0;
  static Acc fold(Acc acc, S x, Acc shift) {
    const double d = static_cast<double>(x) - shift;
    return acc + d * d;
  }
  static Acc join(Acc a, Acc b) { return a + b; }
};

template <class S, bool Largest>
struct Extreme {
  using Acc = S;
  static constexpr bool kShifted = false;
  static constexpr Acc kStart =
      std::numeric_limits<S>::has_infinity
          ? (Largest ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::infinity())
          : (Largest ? std::numeric_limits<S>::lowest() : std::numeric_limits<S>::max());
  static Acc fold(Acc acc, S x, Acc /*shift*/) { return join(acc, x); }
  static Acc join(Acc a, Acc b) {
    const bool keep = (Largest ? a > b : a < b) | (a != a);
    return keep ? a : b;
  }
};

// Folds a run of one output.
template <class P, class S, class Acc = typename P::Acc>
Acc fold_run(const S* x, int64_t n, int64_t stride, Acc shift) {
  Acc acc = P::kStart;
  if (stride != 1 || n < kLanes) {
    for (int64_t i = 0; i < n; ++i) {
      acc = P::fold(acc, x[i * stride], shift);
    }
    return acc;
  }
  Acc lane[kLanes];
  std::fill_n(lane, kLanes, P::kStart);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      lane[k] = P::fold(lane[k], x[i + k], shift);
    }
  }
  for (; i < n; ++i) {
    acc = P::fold(acc, x[i], shift);
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) {
      lane[k] = P::join(lane[k], lane[k + width]);
    }
  }
  return P::join(lane[0], acc);
}

// Along the reduced dims: out[o] for every output, cut into parts of kRowPart.
template <class P, class S, class Acc = typename P::Acc>
void reduce_rows(const Reduction& r, const S* x, const Acc* shift, Acc* out) {
  const int64_t count = r.count(), parts = (count + kRowPart - 1) / kRowPart;
  const auto fold_part = [&](const S* from, int64_t part, Acc s) {
    Acc acc = P::kStart;
    const int64_t end = std::min(count, (part + 1) * kRowPart);
    r.reduced.for_each_run(part * kRowPart, end, [&](const auto& at, int64_t n) {
      acc = P::join(acc, fold_run<P>(from + at[0], n, r.reduced.inner().stride[0], s));
    });
    return acc;
  };
  std::vector<Acc> partial(parts > 1 ? static_cast<size_t>(r.outputs() * parts) : 0);
  Acc* part_out = parts > 1 ? partial.data() : out;
  const int64_t grain = chunk_rows(std::min(count, kRowPart));
  parallel_chunks(r.outputs() * parts, grain, [&](int64_t begin, int64_t end) {
    int64_t item = begin;
    r.kept.for_each_run(begin / parts, (end + parts - 1) / parts, [&](const auto& at, int64_t n) {
      for (int64_t k = 0; k < n; ++k) {
        const S* from = x + at[0] + k * r.kept.inner().stride[0];
        const Acc s = P::kShifted ? shift[item / parts] : Acc{};
        do {
          part_out[item] = fold_part(from, item % parts, s);
        } while (++item < end && item % parts != 0);
      }
    });
  });
  if (parts > 1) {
    for (int64_t o = 0; o < r.outputs(); ++o) {
      out[o] = part_out[o * parts];
      for (int64_t part = 1; part < parts; ++part) {
        out[o] = P::join(out[o], part_out[o * parts + part]);
      }
    }
  }
}

// Folds rows [begin, end) of `cols` dense columns into acc, four rows at a time.
template <class P, class S, class Acc = typename P::Acc>
void fold_columns(const Strided<1>& rows, int64_t begin, int64_t end, const S* x, int64_t cols,
                  const Acc* shift, Acc* acc) {
  std::fill_n(acc, cols, P::kStart);
  const int64_t ld = rows.inner().stride[0];
  const auto s = [shift](int64_t c) { return P::kShifted ? shift[c] : Acc{}; };
  rows.for_each_run(begin, end, [&](const auto& at, int64_t n) {
    const S* row = x + at[0];
    for (; n >= 4; n -= 4, row += 4 * ld) {
      for (int64_t c = 0; c < cols; ++c) {
        const Acc two = P::fold(P::fold(acc[c], row[c], s(c)), row[c + ld], s(c));
        acc[c] = P::fold(P::fold(two, row[c + 2 * ld], s(c)), row[c + 3 * ld], s(c));
      }
    }
    for (; n > 0; --n, row += ld) {
      for (int64_t c = 0; c < cols; ++c) {
        acc[c] = P::fold(acc[c], row[c], s(c));
      }
    }
  });
}

// Across the reduced dims: blocks of kColumns of the innermost kept dim, parts of kColumnPart
// rows.
template <class P, class S, class Acc = typename P::Acc>
void reduce_columns(const Reduction& r, const S* x, const Acc* shift, Acc* out) {
  const int64_t count = r.count(), cols = r.kept.inner().size, outer = r.outputs() / cols;
  const int64_t parts = (count + kColumnPart - 1) / kColumnPart;
  const int64_t blocks = (cols + kColumns - 1) / kColumns;
  std::vector<Acc> partial(parts > 1 ? static_cast<size_t>(r.outputs() * parts) : 0);
  const int64_t work = std::min(count, kColumnPart) * std::min(cols, kColumns);
  const int64_t grain = chunk_rows(work);
  parallel_chunks(outer * blocks * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts, block = item / parts % blocks, o = item / parts / blocks;
      const int64_t first = o * cols + block * kColumns;  // the block's first output
      const int64_t width = std::min(kColumns, cols - block * kColumns);
      Acc* acc = parts > 1 ? partial.data() + part * r.outputs() + first : out + first;
      r.kept.for_each_run(first, first + 1, [&](const auto& at, int64_t /*n*/) {
        fold_columns<P>(r.reduced, part * kColumnPart, std::min(count, (part + 1) * kColumnPart),
                        x + at[0], width, P::kShifted ? shift + first : nullptr, acc);
      });
    }
  });
  if (parts > 1) {
    parallel_chunks(r.outputs(), chunk_rows(parts), [&](int64_t begin, int64_t end) {
      std::copy(partial.data() + begin, partial.data() + end, out + begin);
      for (int64_t part = 1; part < parts; ++part) {
        const Acc* from = partial.data() + part * r.outputs();
        for (int64_t o = begin; o < end; ++o) {
          out[o] = P::join(out[o], from[o]);
        }
      }
    });
  }
}

template <class P, class S, class Acc = typename P::Acc>
void reduce(const Reduction& r, const S* x, const Acc* shift, Acc* out) {
  if (r.count() == 0) {
    std::fill_n(out, r.outputs(), P::kStart);
    return;
  }
  if (r.outputs() == 0) {
    return;
  }
  const auto& kept = r.kept.inner();
  const int64_t step = r.reduced.inner().stride[0];
  if (kept.stride[0] == 1 && kept.size >= 8 && step != 1) {
    reduce_columns<P>(r, x, shift, out);
  } else {
    reduce_rows<P>(r, x, shift, out);
  }
}

// Sorts dims into kept and reduced. The reduced ones go by falling stride, so that a permuted
// input is read in the order of memory.
Strided<1> pick_dims(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                     const std::vector<bool>& reduced, bool want_reduced) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (reduced[d] == want_reduced) {
      dims.push_back(d);
    }
  }
  if (want_reduced) {
    std::stable_sort(dims.begin(), dims.end(),
                     [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  }
  std::vector<int64_t> picked_sizes, picked_strides;
  for (const size_t d : dims) {
    picked_sizes.push_back(sizes[d]);
    picked_strides.push_back(strides[d]);
  }
  return {picked_sizes, {picked_strides}};
}

std::vector<bool> mark(size_t rank, std::span<const int64_t> dims) {
  std::vector<bool> marked(rank);
  for (const int64_t d : dims) {
    marked[static_cast<size_t>(d)] = true;
  }
  return marked;
}

// y[o] = f(acc[o]).
template <class Acc, class S, class F>
void store(const std::vector<Acc>& acc, S* y, F f) {
  map(Strided<2>::contiguous(static_cast<int64_t>(acc.size())), y, f, acc.data());
}

}  // namespace

Reduction::Reduction(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                     std::span<const int64_t> dims)
    : kept(pick_dims(sizes, strides, mark(sizes.size(), dims), false)),
      reduced(pick_dims(sizes, strides, mark(sizes.size(), dims), true)) {}

Reduction Reduction::to_shape(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                              std::span<const int64_t> to) {
  const size_t extra = sizes.size() - to.size();
  std::vector<int64_t> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d < extra || (to[d - extra] == 1 && sizes[d] != 1)) {
      dims.push_back(static_cast<int64_t>(d));
    }
  }
  return {sizes, strides, dims};
}

template <class X, class Y>
void sum(const Reduction& r, const X* x, Y* y, double divisor) {
  using Acc = typename Sum<X>::Acc;
  std::vector<Acc> acc(static_cast<size_t>(r.outputs()));
  reduce<Sum<X>>(r, x, static_cast<const Acc*>(nullptr), acc.data());
  if constexpr (std::is_same_v<Y, int64_t>) {
    store(acc, y, [](Acc a) { return static_cast<Y>(a); });
  } else {
    store(acc, y, [divisor](Acc a) { return static_cast<Y>(a / divisor); });
  }
}

template <class S>
void variance(const Reduction& r, const S* x, S* y, double divisor) {
  std::vector<double> mean(static_cast<size_t>(r.outputs())), acc(mean.size());
  reduce<Sum<S>>(r, x, static_cast<const double*>(nullptr), mean.data());
  for (double& m : mean) {
    m /= static_cast<double>(r.count());
  }
  reduce<SquaredDistance<S>>(r, x, static_cast<const double*>(mean.data()), acc.data());
  store(acc, y, [divisor](double a) { return static_cast<S>(a / divisor); });
}

template <class S>
void amax(const Reduction& r, const S* x, S* y) {
  reduce<Extreme<S, true>>(r, x, static_cast<const S*>(nullptr), y);
}

template <class S>
void amin(const Reduction& r, const S* x, S* y) {
  reduce<Extreme<S, false>>(r, x, static_cast<const S*>(nullptr), y);
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type or a template's name cannot stand in them.
#define SUM(X, Y) template void sum<X, Y>(const Reduction&, const X*, Y*, double);
#define REDUCE(S)                                        \
  SUM(S, S)                                              \
  template void amax<S>(const Reduction&, const S*, S*); \
  template void amin<S>(const Reduction&, const S*, S*);
REDUCE(float)
REDUCE(double)
REDUCE(int64_t)
SUM(bfloat16, bfloat16)
SUM(bfloat16, float)
template void variance<float>(const Reduction&, const float*, float*, double);
template void variance<double>(const Reduction&, const double*, double*, double);
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
