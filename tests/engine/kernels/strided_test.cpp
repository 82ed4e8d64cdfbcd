#include "engine/kernels/strided.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/engine/kernels/nd.h"

namespace chargrad::kernels {
namespace {

using ::testing::ElementsAre;
using testing::for_each_index;
using testing::Layout;
using testing::Nd;
using testing::product;
using testing::Sizes;
using testing::space_of;

TEST(Strided, MergesContiguousDims) {
  const Nd<float> y({2, 3, 1, 4}), x({2, 3, 1, 4});
  const auto space = space_of(y, x);
  ASSERT_EQ(space.dims().size(), 1u);
  EXPECT_EQ(space.inner().size, 24);
  EXPECT_THAT(space.inner().stride, ElementsAre(1, 1));
}

TEST(Strided, KeepsARepeatedRowAsTwoDims) {
  const Nd<float> y({2, 3, 4});
  const Nd<float> bias({2, 3, 4}, {{}, {true, true, false}});
  const auto space = space_of(y, bias);
  ASSERT_EQ(space.dims().size(), 2u);
  EXPECT_EQ(space.dims()[0].size, 6);
  EXPECT_THAT(space.dims()[0].stride, ElementsAre(4, 0));
  EXPECT_EQ(space.inner().size, 4);
}

TEST(Strided, AScalarIsOneElementAndAnEmptyOneNone) {
  EXPECT_EQ(space_of(Nd<float>(Sizes{})).numel(), 1);
  const auto empty = space_of(Nd<float>({3, 0, 2}));
  EXPECT_EQ(empty.numel(), 0);
  int calls = 0;
  empty.parallel_runs([&](const auto& /*at*/, int64_t /*n*/) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(Strided, RunsVisitEveryPositionInOrderFromAnyStart) {
  const Sizes sizes{3, 4, 1, 5, 2};
  Nd<float> y(sizes);
  Nd<float> x(sizes, {{4, 1, 3, 0, 2}, {}, 2});
  std::vector<std::array<int64_t, 2>> expected;
  for_each_index(sizes, [&](const Sizes& index) {
    expected.push_back({&y[index] - y.data(), &x[index] - x.data()});
  });
  const auto space = space_of(y, x);
  for (const int64_t begin : {0, 1, 9, 10, 59, 119}) {
    for (const int64_t end : {begin, begin + 1, int64_t{120}}) {
      std::vector<std::array<int64_t, 2>> seen;
      space.for_each_run(begin, end, [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const auto& stride = space.inner().stride;
          seen.push_back({at[0] + i * stride[0], at[1] + i * stride[1]});
        }
      });
      EXPECT_EQ(seen, (std::vector<std::array<int64_t, 2>>(expected.begin() + begin,
                                                           expected.begin() + end)))
          << begin << " to " << end;
    }
  }
}

TEST(Strided, MapWritesAStridedOutputAndNothingElse) {
  Nd<double> y({3, 5}, {{1, 0}, {}, 2}), x({3, 5});
  x.fill(1);
  std::fill_n(y.data(), y.count, 77.0);
  map(
      space_of(y, x), y.data(), [](double v) { return v + 100; }, x.data());
  std::set<const double*> written;
  for_each_index(x.sizes, [&](const Sizes& index) {
    EXPECT_EQ(y[index], x[index] + 100);
    written.insert(&y[index]);
  });
  for (int64_t i = 0; i < y.count; ++i) {
    if (written.count(y.data() + i) == 0) {
      EXPECT_EQ(y.data()[i], 77.0);
    }
  }
}

TEST(Strided, MapWorksInPlace) {
  Nd<float> x({1000}), before({1000});
  x.fill(3);
  before.fill(3);
  map(
      space_of(x, x, x), x.data(), [](float u, float v) { return u + 2 * v; }, x.data(), x.data());
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(x[{i}], 3 * before.data()[i]);
  }
}

}  // namespace
}  // namespace chargrad::kernels
