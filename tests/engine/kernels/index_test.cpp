#include "engine/kernels/index.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/engine/kernels/nd.h"

namespace chargrad::kernels {
namespace {

using testing::for_each_index;
using testing::Nd;
using testing::product;
using testing::same_for_any_threads;
using testing::Sizes;
using testing::space_of;

std::vector<int64_t> some_indices(int64_t count, int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int64_t> index(static_cast<size_t>(count));
  for (int64_t& i : index) {
    i = static_cast<int64_t>(engine()) % n;
  }
  return index;
}

std::vector<Selection> selections() {
  return {
      {1, 5, 3, 7},    {2, 5, 1, 4},    {3, 1, 4, 2},      {2, 4, 3, 0},
      {0, 5, 3, 7},    {2, 5, 0, 3},    {1, 65, 300, 500},  // an embedding
      {7, 9, 300, 31}, {1, 1000, 8, 5},
  };
}

template <class S>
void expect_selected(const Selection& s) {
  Nd<S> x({s.outer, s.n, s.inner}), y({s.outer, s.count, s.inner});
  x.fill(1);
  const auto index = some_indices(s.count, s.n, 2);
  index_select<S>(s, index.data(), x.data(), y.data());
  for_each_index(y.sizes, [&](const Sizes& i) {
    ASSERT_EQ(y[i], (x[{i[0], index[static_cast<size_t>(i[1])], i[2]}]));
  });
}

TEST(Index, SelectCopiesRowsOfEveryType) {
  for (const Selection& s : selections()) {
    expect_selected<float>(s);
    expect_selected<double>(s);
    expect_selected<bfloat16>(s);
    expect_selected<int64_t>(s);
    expect_selected<bool>(s);
  }
}

// Eighths add up exactly, so that the order does not matter here.
template <class S>
void expect_added_up(const Selection& s) {
  Nd<S> dx({s.outer, s.n, s.inner}), dy({s.outer, s.count, s.inner});
  Nd<S> expected(dx.sizes);
  dy.fill(3);
  std::fill_n(dx.data(), dx.count, S{99});  // overwritten, untouched rows too
  const auto index = some_indices(s.count, s.n, 2);
  for_each_index(dy.sizes, [&](const Sizes& i) {
    expected[{i[0], index[static_cast<size_t>(i[1])], i[2]}] += dy[i];
  });
  index_select_backward<S>(s, index.data(), dy.data(), dx.data());
  for_each_index(dx.sizes, [&](const Sizes& i) { ASSERT_EQ(dx[i], expected[i]); });
}

TEST(Index, SelectBackwardAddsUpRepeatedRows) {
  for (const Selection& s : selections()) {
    expect_added_up<float>(s);
    expect_added_up<double>(s);
  }
}

TEST(Index, SelectBackwardRoundsOnce) {
  const std::vector<int64_t> index(3000, 0);
  std::vector<float> dy(3000, 0.1f);
  float dx = 0;
  index_select_backward<float>({1, 1, 1, 3000}, index.data(), dy.data(), &dx);
  EXPECT_EQ(dx, static_cast<float>(3000 * static_cast<double>(0.1f)));
}

TEST(Index, FirstOutside) {
  const int64_t index[4] = {0, 4, 5, -1};
  EXPECT_EQ(first_outside(index, 2, 5), -1);
  EXPECT_EQ(first_outside(index, 4, 5), 2);
  EXPECT_EQ(first_outside(index + 3, 1, 5), 0);
  EXPECT_EQ(first_outside(index, 0, 0), -1);
}

struct GatherCase {
  Sizes x;
  testing::Layout layout;
  Sizes index;
  size_t dim;
};

std::vector<GatherCase> gather_cases() {
  return {
      {{5}, {}, {7}, 0},
      {{3, 5}, {}, {3, 1}, 1},
      {{3, 5}, {}, {2, 4}, 1},  // smaller than x outside the dim
      {{3, 5}, {}, {6, 5}, 0},
      {{3, 5}, {{1, 0}}, {6, 5}, 0},
      {{2, 3, 4}, {{1, 2, 0}}, {2, 8, 3}, 1},
      {{2, 3, 4}, {}, {2, 0, 3}, 1},
      {{40, 9, 50}, {}, {39, 11, 48}, 1},
      {{400, 65}, {}, {400, 90}, 1},
  };
}

// The space of y, index and x, whose stride in `dim` is 0 there.
template <class S>
Strided<3> gather_space(const Nd<S>& y, const Nd<int64_t>& index, const Nd<S>& x, size_t dim) {
  Sizes strides = x.strides;
  strides[dim] = 0;
  return {index.sizes, {y.strides, index.strides, strides}};
}

Nd<int64_t> random_index(const GatherCase& c) {
  Nd<int64_t> index(c.index);
  const auto values = some_indices(index.count, c.x[c.dim], 5);
  std::copy(values.begin(), values.end(), index.data());
  return index;
}

TEST(Index, GatherAndItsGradient) {
  for (const GatherCase& c : gather_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c.x) + ::testing::PrintToString(c.index));
    Nd<double> x(c.x, c.layout), y(c.index), dx(c.x), expected(c.x);
    x.fill(1);
    auto index = random_index(c);
    const auto source = [&](Sizes i) {
      i[c.dim] = index[i];
      return i;
    };
    gather<double>(gather_space(y, index, x, c.dim), x.strides[c.dim], y.data(), index.data(),
                   x.data());
    for_each_index(c.index, [&](const Sizes& i) { ASSERT_EQ(y[i], x[source(i)]); });

    y.fill(2);  // now dy
    for_each_index(c.index, [&](const Sizes& i) { expected[source(i)] += y[i]; });
    const int64_t slices =
        product(Sizes(c.index.begin(), c.index.begin() + static_cast<std::ptrdiff_t>(c.dim)));
    gather_backward<double>(gather_space(y, index, dx, c.dim), dx.strides[c.dim], slices, y.data(),
                            index.data(), dx.data());
    for_each_index(c.x, [&](const Sizes& i) { ASSERT_EQ(dx[i], expected[i]); });
  }
}

TEST(Index, Triangles) {
  const Sizes sizes{2, 5, 4};
  Nd<int64_t> x(sizes), low(sizes), up(sizes);
  std::iota(x.data(), x.data() + x.count, 1);
  for (const int64_t diagonal :
       {std::numeric_limits<int64_t>::min(), int64_t{-7}, int64_t{-1}, int64_t{0}, int64_t{1},
        int64_t{2}, int64_t{9}, std::numeric_limits<int64_t>::max()}) {
    tril<int64_t>(x.data(), low.data(), 2, 5, 4, diagonal);
    triu<int64_t>(x.data(), up.data(), 2, 5, 4, diagonal);
    for_each_index(sizes, [&](const Sizes& i) {
      ASSERT_EQ(low[i], i[2] - i[1] <= diagonal ? x[i] : 0);
      ASSERT_EQ(up[i], i[2] - i[1] >= diagonal ? x[i] : 0);
    });
  }
  const bool flag = true;
  bool above = true;
  triu<bool>(&flag, &above, 1, 1, 1, 1);
  EXPECT_FALSE(above);
}

TEST(IndexThreads, SameBitsForAnyNumber) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  const Selection s{3, 65, 300, 777};
  Nd<float> dy({s.outer, s.count, s.inner});
  std::generate_n(dy.data(), dy.count, [&] { return normal(engine); });
  const auto index = some_indices(s.count, s.n, 2);
  EXPECT_TRUE(same_for_any_threads([&] {
    std::vector<float> dx(static_cast<size_t>(s.outer * s.n * s.inner));
    index_select_backward<float>(s, index.data(), dy.data(), dx.data());
    return dx;
  }));
  const GatherCase c{{400, 65}, {}, {400, 90}, 1};
  auto places = random_index(c);
  EXPECT_TRUE(same_for_any_threads([&] {
    Nd<float> dx(c.x), part(c.index);
    part.fill(1);
    gather_backward<float>(gather_space(part, places, dx, 1), 1, 400, dy.data(), places.data(),
                           dx.data());
    return std::vector<float>(dx.data(), dx.data() + dx.count);
  }));
}

}  // namespace
}  // namespace chargrad::kernels
