#include "engine/kernels/copy.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/kernels/convert.h"

namespace chargrad::kernels {

namespace {

template <class Y, class X>
Y convert(X x) {
  constexpr bool from_floating = !std::is_integral_v<X>;
  if constexpr (std::is_same_v<Y, X>) {
    return x;
  } else if constexpr (std::is_same_v<Y, bool>) {
    return x != X{};
  } else if constexpr (std::is_same_v<Y, int64_t> && from_floating) {
    constexpr double kLimit = 9223372036854775808.0;  // 2^63; below it every value fits.
    const auto wide = static_cast<double>(x);
    return wide >= -kLimit && wide < kLimit ? static_cast<int64_t>(wide)
                                            : std::numeric_limits<int64_t>::min();
  } else if constexpr (std::is_same_v<Y, bfloat16>) {
    return bfloat16(static_cast<float>(x));
  } else {
    return static_cast<Y>(x);
  }
}

// Tiles that a transposed source is read in: kTileRows elements from each of kTileCols columns. A
// tile passes through a buffer, so that a line of the source is used up at once: where columns
// lie a power of two apart, all lines of a tile fall into one set of the first-level cache.
// Measured 2026-11-29 on an AMD EPYC, float: (16384, 384) at 1.3 ns an element, 32 x 32 tiles take
// 2.3; within the second-level cache 0.34 and 0.39.
constexpr int64_t kTileRows = 128;
constexpr int64_t kTileCols = 16;

// One band of a transposed source: up to kTileRows rows, all columns.
template <class Y, class X>
void copy_band(Y* y, const X* x, int64_t rows, int64_t cols, int64_t y_row, int64_t x_col) {
  X tile[kTileRows * kTileCols];
  for (int64_t first = 0; first < cols; first += kTileCols) {
    const int64_t width = std::min(kTileCols, cols - first);
    for (int64_t j = 0; j < width; ++j) {
      std::copy_n(x + (first + j) * x_col, rows, tile + j * kTileRows);
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        y[i * y_row + first + j] = convert<Y>(tile[i + j * kTileRows]);
      }
    }
  }
}

// y[.., i, .., j] = x[.., i, .., j] where y is dense along j, the last dim, and x along i.
template <class Y, class X>
void copy_transposed(const Strided<2>& space, size_t i_dim, Y* y, const X* x) {
  const auto rows = space.dims()[i_dim], cols = space.inner();
  std::vector<int64_t> sizes, y_strides, x_strides;  // of the other dims
  for (size_t d = 0; d + 1 < space.dims().size(); ++d) {
    if (d != i_dim) {
      sizes.push_back(space.dims()[d].size);
      y_strides.push_back(space.dims()[d].stride[0]);
      x_strides.push_back(space.dims()[d].stride[1]);
    }
  }
  const Strided<2> outer(sizes, {y_strides, x_strides});
  const int64_t bands = (rows.size + kTileRows - 1) / kTileRows;
  const int64_t grain = chunk_rows(kTileRows * cols.size);
  parallel_chunks(outer.numel() * bands, grain, [&](int64_t begin, int64_t end) {
    int64_t item = begin;
    outer.for_each_run(begin / bands, (end + bands - 1) / bands, [&](const auto& at, int64_t n) {
      for (int64_t k = 0; k < n; ++k) {
        Y* y_at = y + at[0] + k * outer.inner().stride[0];
        const X* x_at = x + at[1] + k * outer.inner().stride[1];
        do {
          const int64_t i = item % bands * kTileRows;
          copy_band(y_at + i * rows.stride[0], x_at + i, std::min(kTileRows, rows.size - i),
                    cols.size, rows.stride[0], cols.stride[1]);
        } while (++item < end && item % bands != 0);
      }
    });
  });
}

}  // namespace

template <class Y, class X>
void copy(const Strided<2>& space, Y* y, const X* x) {
  const auto& stride = space.inner().stride;
  if (stride[0] == 1 && stride[1] > 1 && space.inner().size > 1) {
    for (size_t d = 0; d + 1 < space.dims().size(); ++d) {
      if (space.dims()[d].stride[1] == 1) {
        copy_transposed(space, d, y, x);
        return;
      }
    }
  }
  if constexpr (std::is_same_v<Y, X>) {
    if (stride[0] == 1 && stride[1] == 1) {
      space.parallel_runs([&](const auto& at, int64_t n) {
        std::memmove(y + at[0], x + at[1], static_cast<size_t>(n) * sizeof(Y));
      });
      return;
    }
  }
  if constexpr (std::is_same_v<Y, bfloat16> && std::is_same_v<X, float>) {
    if (space.is_one_run()) {
      to_bfloat16(x, y, space.numel());
      return;
    }
  }
  if constexpr (std::is_same_v<Y, float> && std::is_same_v<X, bfloat16>) {
    if (space.is_one_run()) {
      to_float(x, y, space.numel());
      return;
    }
  }
  const auto f = [](X v) { return convert<Y>(v); };
  map(space, y, f, x);
}

template <class S>
void fill(const Strided<1>& space, S* y, S value) {
  map(space, y, [value]() { return value; });
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type or a template's name cannot stand in them.
#define COPY(Y, X) template void copy<Y, X>(const Strided<2>&, Y*, const X*);
#define COPY_TO_ALL(X) \
  COPY(float, X) COPY(double, X) COPY(bfloat16, X) COPY(int64_t, X) COPY(bool, X)
COPY_TO_ALL(float)
COPY_TO_ALL(double)
COPY_TO_ALL(bfloat16)
COPY_TO_ALL(int64_t)
COPY_TO_ALL(bool)
template void fill<float>(const Strided<1>&, float*, float);
template void fill<double>(const Strided<1>&, double*, double);
template void fill<bfloat16>(const Strided<1>&, bfloat16*, bfloat16);
template void fill<int64_t>(const Strided<1>&, int64_t*, int64_t);
template void fill<bool>(const Strided<1>&, bool*, bool);
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
