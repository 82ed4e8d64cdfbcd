// Extremes with their position, and cumulative sums (declared in reduce.h).
#include <type_traits>

#include "engine/kernels/reduce.h"

namespace chargrad::kernels {

namespace {

// Columns that are searched side by side.
constexpr int64_t kColumns = 256;

// Whether x takes the place of best: it is further out, or the first NaN.
template <bool Largest, class S>
bool beats(S x, S best) {
  return (Largest ? x > best : x < best) | ((x != x) & (best == best));
}

template <bool Largest, class S>
void search_row(const S* x, int64_t n, int64_t step, S& best, int64_t& index) {
  best = x[0];
  index = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (beats<Largest>(x[i * step], best)) {
      best = x[i * step];
      index = i;
    }
  }
}

// `width` dense columns of n elements.
template <bool Largest, class S>
void search_columns(const S* x, int64_t n, int64_t step, int64_t width, S* best, int64_t* index) {
  std::copy(x, x + width, best);
  std::fill_n(index, width, 0);
  for (int64_t i = 1; i < n; ++i) {
    const S* row = x + i * step;
    for (int64_t c = 0; c < width; ++c) {
      const bool better = beats<Largest>(row[c], best[c]);
      best[c] = better ? row[c] : best[c];
      index[c] = better ? i : index[c];
    }
  }
}

template <bool Largest, class S>
void search(const Strided<1>& kept, int64_t n, int64_t step, const S* x, S* y, int64_t* index) {
  const bool columns = kept.inner().stride[0] == 1 && step != 1;
  const int64_t kept_step = kept.inner().stride[0];
  const int64_t grain = chunk_rows(n);
  parallel_chunks(kept.numel(), grain, [&](int64_t begin, int64_t end) {
    int64_t o = begin;
    S best[kColumns];
    kept.for_each_run(begin, end, [&](const auto& at, int64_t run) {
      const S* from = x + at[0];
      for (int64_t k = 0; k < run;) {
        const int64_t width = columns ? std::min(kColumns, run - k) : 1;
        if (columns) {
          search_columns<Largest>(from + k, n, step, width, best, index + o);
        } else {
          search_row<Largest>(from + k * kept_step, n, step, best[0], index[o]);
        }
        if (y != nullptr) {
          std::copy(best, best + width, y + o);
        }
        k += width;
        o += width;
      }
    });
  });
}

}  // namespace

template <class S>
void max_index(const Strided<1>& kept, int64_t n, int64_t step, const S* x, S* y, int64_t* index) {
  search<true>(kept, n, step, x, y, index);
}

template <class S>
void min_index(const Strided<1>& kept, int64_t n, int64_t step, const S* x, S* y, int64_t* index) {
  search<false>(kept, n, step, x, y, index);
}

template <class S>
void cumsum(const S* x, S* y, int64_t rows, int64_t cols) {
  const int64_t grain = chunk_rows(cols);
  parallel_chunks(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      S total = 0;
      for (int64_t c = 0; c < cols; ++c) {
        total += x[r * cols + c];
        y[r * cols + c] = total;
      }
    }
  });
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type or a template's name cannot stand in them.
#define SCAN(S)                                                                            \
  template void max_index<S>(const Strided<1>&, int64_t, int64_t, const S*, S*, int64_t*); \
  template void min_index<S>(const Strided<1>&, int64_t, int64_t, const S*, S*, int64_t*); \
  template void cumsum<S>(const S*, S*, int64_t, int64_t);
SCAN(float)
SCAN(double)
SCAN(int64_t)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
