#include "engine/kernels/index.h"

#include "engine/dtype.h"

namespace chargrad::kernels {

namespace {

// Columns of a row that are summed together; their double sums (2 KiB) stay in the first-level
// cache.
constexpr int64_t kColumns = 256;

// Positions of an index grouped by its value, each group in rising order: those of value j are
// order[start[j]] ... order[start[j + 1] - 1].
struct Groups {
  Groups(const int64_t* index, int64_t count, int64_t n)
      : start(static_cast<size_t>(n) + 1), order(static_cast<size_t>(count)) {
    for (int64_t i = 0; i < count; ++i) {
      ++start[static_cast<size_t>(index[i]) + 1];
    }
    for (size_t j = 1; j < start.size(); ++j) {
      start[j] += start[j - 1];
    }
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < count; ++i) {
      order[static_cast<size_t>(next[static_cast<size_t>(index[i])]++)] = i;
    }
  }

  std::vector<int64_t> start, order;
};

// Copies the columns [first(row), last(row)) of each row and zeroes the others.
template <class S, class First, class Last>
void triangle(const S* x, S* y, int64_t batch, int64_t rows, int64_t cols, First first, Last last) {
  parallel_chunks(batch * rows, chunk_rows(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t from = std::clamp<int64_t>(first(r % rows), 0, cols);
      const int64_t to = std::clamp<int64_t>(last(r % rows), from, cols);
      std::fill_n(y + r * cols, from, S{});
      std::copy_n(x + r * cols + from, to - from, y + r * cols + from);
      std::fill_n(y + r * cols + to, cols - to, S{});
    }
  });
}

}  // namespace

int64_t first_outside(const int64_t* index, int64_t count, int64_t n) {
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= n) {
      return i;
    }
  }
  return -1;
}

template <class S>
void index_select(const Selection& s, const int64_t* index, const S* x, S* y) {
  const int64_t grain = chunk_rows(s.inner);
  parallel_chunks(s.outer * s.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const S* row = x + (r / s.count * s.n + index[r % s.count]) * s.inner;
      std::copy(row, row + s.inner, y + r * s.inner);
    }
  });
}

template <class S>
void index_select_backward(const Selection& s, const int64_t* index, const S* dy, S* dx) {
  const Groups groups(index, s.count, s.n);
  const int64_t blocks = (s.inner + kColumns - 1) / kColumns, items = s.outer * s.n * blocks;
  // As many items as make up kChunkElements elements on average, read and written.
  const int64_t elements = s.outer * (s.n + s.count) * s.inner;
  const auto grain = static_cast<int64_t>(static_cast<double>(items) * kChunkElements /
                                          static_cast<double>(std::max<int64_t>(elements, 1)));
  parallel_chunks(items, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    double acc[kColumns];
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % blocks * kColumns, row = item / blocks;  // row of [outer * n]
      const int64_t width = std::min(kColumns, s.inner - first);
      std::fill_n(acc, width, 0.0);
      const auto j = static_cast<size_t>(row % s.n);
      const S* from = dy + row / s.n * s.count * s.inner + first;
      for (int64_t k = groups.start[j]; k < groups.start[j + 1]; ++k) {
        const S* part = from + groups.order[static_cast<size_t>(k)] * s.inner;
        for (int64_t c = 0; c < width; ++c) {
          acc[c] += static_cast<double>(part[c]);
        }
      }
      std::transform(acc, acc + width, dx + row * s.inner + first,
                     [](double a) { return static_cast<S>(a); });
    }
  });
}

template <class S>
void gather(const Strided<3>& space, int64_t step, S* y, const int64_t* index, const S* x) {
  const auto& stride = space.inner().stride;
  space.parallel_runs([&](const auto& at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      y[at[0] + i * stride[0]] = x[at[2] + i * stride[2] + index[at[1] + i * stride[1]] * step];
    }
  });
}

template <class S>
void gather_backward(const Strided<3>& space, int64_t step, int64_t slices, const S* dy,
                     const int64_t* index, S* dx) {
  if (space.numel() == 0) {
    return;
  }
  const auto& stride = space.inner().stride;
  const int64_t slice = space.numel() / slices;
  const int64_t grain = chunk_rows(slice);
  parallel_chunks(slices, grain, [&](int64_t begin, int64_t end) {
    space.for_each_run(begin * slice, end * slice, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        dx[at[2] + i * stride[2] + index[at[1] + i * stride[1]] * step] +=
            dy[at[0] + i * stride[0]];
      }
    });
  });
}

template <class S>
void tril(const S* x, S* y, int64_t batch, int64_t rows, int64_t cols, int64_t diagonal) {
  const int64_t d = std::clamp(diagonal, -rows, cols);  // beyond, nothing changes
  triangle(
      x, y, batch, rows, cols, [](int64_t /*row*/) { return 0; },
      [d](int64_t row) { return row + d + 1; });
}

template <class S>
void triu(const S* x, S* y, int64_t batch, int64_t rows, int64_t cols, int64_t diagonal) {
  const int64_t d = std::clamp(diagonal, -rows, cols);
  triangle(
      x, y, batch, rows, cols, [d](int64_t row) { return row + d; },
      [cols](int64_t /*row*/) { return cols; });
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type or a template's name cannot stand in them.
#define INDEX(S)                                                                     \
  template void index_select<S>(const Selection&, const int64_t*, const S*, S*);     \
  template void gather<S>(const Strided<3>&, int64_t, S*, const int64_t*, const S*); \
  template void tril<S>(const S*, S*, int64_t, int64_t, int64_t, int64_t);           \
  template void triu<S>(const S*, S*, int64_t, int64_t, int64_t, int64_t);
#define INDEX_BACKWARD(S)                                                                         \
  template void index_select_backward<S>(const Selection&, const int64_t*, const S*, S*);         \
  template void gather_backward<S>(const Strided<3>&, int64_t, int64_t, const S*, const int64_t*, \
                                   S*);
INDEX(float)
INDEX(double)
INDEX(bfloat16)
INDEX(int64_t)
INDEX(bool)
INDEX_BACKWARD(float)
INDEX_BACKWARD(double)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
