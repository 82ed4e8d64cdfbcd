// Arrays of any shape and strides for kernel tests, and the layouts that each kernel is tried on.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "engine/dtype.h"
#include "engine/kernels/strided.h"
#include "engine/threads.h"

namespace chargrad::kernels::testing {

using Sizes = std::vector<int64_t>;

inline int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Calls f(index) for every position in row-major order.
template <class F>
void for_each_index(const Sizes& sizes, F f) {
  Sizes index(sizes.size());
  for (int64_t i = 0; i < product(sizes); ++i) {
    f(std::as_const(index));
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) {
        break;
      }
      index[d] = 0;
    }
  }
}

// How an operand lies in memory: its dims from the slowest to the fastest, the dims it repeats in,
// and the gap between elements.
struct Layout {
  Sizes order = {};               // empty: row-major
  std::vector<bool> repeat = {};  // empty: none
  int64_t gap = 1;
};

// An array with its strides.
template <class S>
struct Nd {
  Nd(Sizes sizes_in, const Layout& layout) : sizes(std::move(sizes_in)), strides(sizes.size()) {
    Sizes order = layout.order;
    if (order.empty()) {
      order.resize(sizes.size());
      std::iota(order.begin(), order.end(), 0);
    }
    int64_t stride = layout.gap;
    for (size_t k = order.size(); k-- > 0;) {
      const auto d = static_cast<size_t>(order[k]);
      const bool repeats = !layout.repeat.empty() && layout.repeat[d];
      strides[d] = repeats ? 0 : stride;
      stride *= repeats ? 1 : sizes[d];
    }
    count = stride;
    memory = std::make_unique<S[]>(static_cast<size_t>(count));
  }
  explicit Nd(Sizes sizes_in) : Nd(std::move(sizes_in), Layout{}) {}

  S& operator[](const Sizes& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      at += index[d] * strides[d];
    }
    return memory[static_cast<size_t>(at)];
  }

  // Numbers in [-2, 2) of few digits, so that ties and zeros occur; different for each seed.
  Nd& fill(uint32_t seed) {
    std::mt19937 engine(seed);
    for (int64_t i = 0; i < count; ++i) {
      memory[static_cast<size_t>(i)] =
          static_cast<S>(static_cast<float>(static_cast<int>(engine() % 32) - 16) / 8);
    }
    return *this;
  }

  S* data() { return memory.get(); }

  Sizes sizes, strides;
  int64_t count = 0;
  std::unique_ptr<S[]> memory;
};

template <class... S>
Strided<sizeof...(S)> space_of(const Nd<S>&... operands) {
  const Sizes* sizes = nullptr;
  ((sizes = &operands.sizes), ...);
  return {*sizes, {std::span<const int64_t>(operands.strides)...}};
}

// Shapes and layouts of two inputs that a broadcasting kernel is tried on.
struct BinaryCase {
  Sizes sizes;
  Layout a, b;
};

inline std::vector<BinaryCase> binary_cases() {
  return {
      {{}, {}, {}},
      {{1}, {}, {}},
      {{0}, {}, {}},
      {{3, 0, 2}, {}, {}},
      {{17}, {}, {}},
      {{17}, {}, {{}, {true}}},
      {{17}, {{}, {true}}, {}},
      {{3, 1, 5}, {}, {}},
      {{5, 7}, {}, {{}, {true, false}}},  // a row beside every row
      {{5, 7}, {{}, {false, true}}, {}},  // a column
      {{5, 7}, {{}, {false, true}}, {{}, {true, false}}},
      {{5, 7}, {{1, 0}}, {}},                  // transposed
      {{5, 7}, {{}, {}, 3}, {{1, 0}, {}, 2}},  // with gaps
      {{2, 3, 4, 5}, {{0, 2, 1, 3}}, {{3, 1, 0, 2}, {false, true, false, false}}},
      {{2, 1, 3, 1, 2, 2}, {{5, 4, 3, 2, 1, 0}}, {}},
      {{40, 41, 43}, {{1, 0, 2}}, {{}, {true, false, true}}},  // more than one chunk
  };
}

// Calls run() with 1, 2, 3 and 7 threads and compares the bytes that it returns.
template <class Run>
bool same_for_any_threads(Run run) {
  set_num_threads(1);
  const auto first = run();
  bool same = true;
  for (const int threads : {2, 3, 7}) {
    set_num_threads(threads);
    const auto other = run();
    same = same && first.size() == other.size();
    if (same && !first.empty()) {
      same = std::memcmp(first.data(), other.data(), first.size() * sizeof(first[0])) == 0;
    }
  }
  set_num_threads(0);
  return same;
}

}  // namespace chargrad::kernels::testing
