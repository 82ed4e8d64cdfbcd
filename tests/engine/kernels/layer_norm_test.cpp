#include "engine/kernels/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>

#include "engine/kernels/layer_norm_ref.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

template <class X, class Y>
struct Forward {
  std::vector<Y> y;
  std::vector<Wide<X>> mean, rstd;
};

template <class X>
struct Backward {
  std::vector<X> dx;
  std::vector<Wide<X>> dweight, dbias;
};

template <class X>
using Parameter = std::vector<Wide<X>>;

// An empty weight or bias stands for none.
template <class X, class Y = X>
Forward<X, Y> forward(const std::vector<X>& x, const Parameter<X>& weight, const Parameter<X>& bias,
                      int64_t rows, double eps = 1e-5) {
  const auto cols = static_cast<int64_t>(x.size()) / rows;
  Guarded<X> in(x);
  Guarded<Y> y(rows * cols);
  Guarded<Wide<X>> w(weight), b(bias), mean(rows), rstd(rows);
  layer_norm_forward<X, Y>(in.data(), weight.empty() ? nullptr : w.data(),
                           bias.empty() ? nullptr : b.data(), eps, rows, cols, y.data(),
                           mean.data(), rstd.data());
  EXPECT_TRUE(y.intact() && mean.intact() && rstd.intact());
  return {y.get(), mean.get(), rstd.get()};
}

// dx also in x's place and, if they are of one type, in dy's, to the bit.
template <class X, class Y = X>
Backward<X> backward(const std::vector<X>& x, const Parameter<X>& weight, const std::vector<Y>& dy,
                     int64_t rows, double eps = 1e-5) {
  const auto cols = static_cast<int64_t>(x.size()) / rows;
  const Forward<X, Y> f = forward<X, Y>(x, weight, {}, rows, eps);
  Guarded<X> in(x), dx(rows * cols);
  Guarded<Y> up(dy);
  Guarded<Wide<X>> w(weight), mean(f.mean), rstd(f.rstd), dweight(cols), dbias(cols);
  const auto run = [&](const X* from, X* to) {
    layer_norm_backward<X, Y>(from, weight.empty() ? nullptr : w.data(), mean.data(), rstd.data(),
                              up.data(), rows, cols, to, dweight.data(), dbias.data());
    EXPECT_TRUE(dweight.intact() && dbias.intact());
  };
  run(in.data(), dx.data());
  EXPECT_TRUE(dx.intact());
  run(in.data(), in.data());
  EXPECT_TRUE(in.intact() && same_bits(in.get(), dx.get()));
  if constexpr (std::is_same_v<X, Y>) {
    run(Guarded<X>(x).data(), up.data());
    EXPECT_TRUE(up.intact() && same_bits(up.get(), dx.get()));
  }
  return {dx.get(), dweight.get(), dbias.get()};
}

// Against double, with and without weight and bias. eps = 0.01 keeps rstd below 10. The mean has an
// error of some 1e-7 (values below 3), the centred value as much and rstd 3e-7 of itself; times 10
// and the weight 2. What is bfloat16 is rounded once.
template <class X, class Y>
void expect_agreement(int64_t rows, int64_t cols) {
  const std::vector<X> x = random_values<X>(rows * cols, 1, -2, 3);
  const std::vector<Y> dy = random_values<Y>(rows * cols, 2, -1, 1);
  const std::vector<float> weight = random_values<float>(cols, 3, 0.5, 2);
  const std::vector<float> bias = random_values<float>(cols, 4, -1, 1);
  for (const bool affine : {true, false}) {
    const auto w = affine ? weight : std::vector<float>();
    const auto b = affine ? bias : std::vector<float>();
    const auto got = forward<X, Y>(x, w, b, rows, 0.01);
    const auto want = forward(to_double(x), to_double(w), to_double(b), rows, 0.01);
    EXPECT_TRUE(near(got.mean, want.mean, 3e-7, 0));
    EXPECT_TRUE(near(got.rstd, want.rstd, 0, 4e-6));
    EXPECT_TRUE(near(got.y, want.y, 4e-6, 1e-6 + rounding_of<Y>));
    const auto grad = backward<X, Y>(x, w, dy, rows, 0.01);
    const auto truth = backward(to_double(x), to_double(w), to_double(dy), rows, 0.01);
    EXPECT_TRUE(near(grad.dx, truth.dx, 2e-5, 4e-6 + rounding_of<X>));
    EXPECT_TRUE(near(grad.dweight, truth.dweight, 1e-5, 0));
    EXPECT_TRUE(near(grad.dbias, truth.dbias, 1e-6, 0));
  }
}

TEST(LayerNorm, AgreesWithDoubleAtOddLengths) {
  std::vector<int64_t> lengths = odd_lengths();
  lengths.push_back(2 * 2048 + 37);
  for (const int64_t cols : lengths) {
    if (cols < 2) {
      continue;  // A row of one element is constant: see WidthOne.
    }
    SCOPED_TRACE(cols);
    expect_agreement<float, float>(5, cols);
    expect_agreement<float, bfloat16>(5, cols);
    expect_agreement<bfloat16, bfloat16>(5, cols);
  }
}

// rstd = 1e5^(1/2); dx = rstd (dy - mean dy).
TEST(LayerNorm, ConstantRow) {
  const std::vector<float> x = {2, 2, 2};
  EXPECT_EQ(forward<float>(x, {1, 1, 1}, {0, 0, 0}, 1).y, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(forward<float>(x, {1, 1, 1}, {4, 5, 6}, 1).y, (std::vector<float>{4, 5, 6}));
  const Backward<float> grad = backward<float>(x, {1, 1, 1}, {1, 0, 0}, 1);
  EXPECT_TRUE(near(grad.dx, {210.8185, -105.40926, -105.40926}, 0, 1e-6));
  EXPECT_EQ(grad.dweight, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(grad.dbias, (std::vector<float>{1, 0, 0}));
}

TEST(LayerNorm, WidthOne) {
  EXPECT_EQ(forward<float>({7, -3}, {2}, {0.5}, 2).y, (std::vector<float>{0.5, 0.5}));
  const Backward<float> grad = backward<float>({7, -3}, {2}, {1, 3}, 2);
  EXPECT_EQ(grad.dx, (std::vector<float>{0, 0}));
  EXPECT_EQ(grad.dweight, (std::vector<float>{0}));
  EXPECT_EQ(grad.dbias, (std::vector<float>{4}));
}

// A mean of 10,000 leaves the values three digits after the point, and the variance survives.
TEST(LayerNorm, LargeMean) {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 10000.0f + static_cast<float>(i % 4);
  }
  const auto f = forward<float>(x, {}, {}, 1);
  EXPECT_TRUE(near(f.rstd, {1 / std::sqrt(1.25 + 1e-5)}, 0, 1e-6));
  EXPECT_NEAR(f.y[0], -1.5 / std::sqrt(1.25), 1e-5);
}

TEST(LayerNorm, NullOutputsAreNotComputed) {
  const std::vector<float> x = random_values<float>(63, 5, -1, 1);
  const std::vector<float> weight = random_values<float>(21, 6, 0.5, 2);
  const auto f = forward<float>(x, weight, {}, 3);
  const Backward<float> all = backward<float>(x, weight, x, 3);
  std::vector<float> dx(x.size()), dweight(21), dbias(21);
  const auto run = [&](float* a, float* b, float* c) {
    layer_norm_backward<float, float>(x.data(), weight.data(), f.mean.data(), f.rstd.data(),
                                      x.data(), 3, 21, a, b, c);
  };
  run(dx.data(), nullptr, nullptr);
  run(nullptr, dweight.data(), nullptr);
  run(nullptr, nullptr, dbias.data());
  EXPECT_TRUE(same_bits(dx, all.dx));
  EXPECT_TRUE(same_bits(dweight, all.dweight));
  EXPECT_TRUE(same_bits(dbias, all.dbias));
}

TEST(LayerNorm, RefGradientIsTheDerivative) {
  const int64_t rows = 4, cols = 6;
  const std::vector<double> x = random_values<double>(rows * cols, 7, -1, 2);
  const std::vector<double> dy = random_values<double>(rows * cols, 8, -1, 1);
  const std::vector<double> weight = random_values<double>(cols, 9, 0.5, 2);
  const std::vector<double> bias = random_values<double>(cols, 10, -1, 1);
  const Backward<double> grad = backward<double>(x, weight, dy, rows, 0.1);
  const auto value = [&](const auto& at, const auto& w, const auto& b) {
    return dot(forward<double>(at, w, b, rows, 0.1).y, dy);
  };
  // h^2 / 6 = 1.7e-11 times derivatives up to rstd^3 < 40; rounding 1e-15 * 20 / 1e-5.
  EXPECT_TRUE(near(grad.dx, central_differences([&](auto& v) { return value(v, weight, bias); }, x),
                   5e-9, 0));
  EXPECT_TRUE(near(grad.dweight,
                   central_differences([&](auto& v) { return value(x, v, bias); }, weight), 5e-9,
                   0));
  EXPECT_TRUE(near(grad.dbias,
                   central_differences([&](auto& v) { return value(x, weight, v); }, bias), 5e-9,
                   0));
}

TEST(LayerNorm, BackwardRowsDoNotDependOnEachOther) {
  const int64_t rows = 7, cols = 41;
  const std::vector<float> x = random_values<float>(rows * cols, 15, -3, 3);
  const std::vector<float> dy = random_values<float>(rows * cols, 16, -1, 1);
  const std::vector<float> weight = random_values<float>(cols, 17, 0.5, 2);
  const std::vector<float> all = backward<float>(x, weight, dy, rows).dx;
  for (int64_t row = 0; row < rows; ++row) {
    const auto part = [row](const std::vector<float>& of) {
      return std::vector<float>(of.begin() + row * cols, of.begin() + (row + 1) * cols);
    };
    EXPECT_TRUE(same_bits(backward<float>(part(x), weight, part(dy), 1).dx, part(all))) << row;
  }
}

// 5,000 rows: more pieces than the sums over rows are cut into, and a last one that is shorter.
TEST(LayerNorm, SameForAllThreadCounts) {
  const int64_t rows = 5000, cols = 33;
  const std::vector<float> x = random_values<float>(rows * cols, 11, -3, 3);
  const std::vector<float> weight = random_values<float>(cols, 12, 0.5, 2);
  EXPECT_TRUE(
      same_for_all_thread_counts<float>([&] { return forward<float>(x, weight, weight, rows).y; }));
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] {
    Backward<float> grad = backward<float>(x, weight, x, rows);
    grad.dx.insert(grad.dx.end(), grad.dweight.begin(), grad.dweight.end());
    grad.dx.insert(grad.dx.end(), grad.dbias.begin(), grad.dbias.end());
    return grad.dx;
  }));
  // dbias_j = sum_i x_ij: 5,000 additions of values below 3, in pieces of 496 rows or more.
  std::vector<double> sums(static_cast<size_t>(cols));
  for (size_t i = 0; i < x.size(); ++i) {
    sums[i % static_cast<size_t>(cols)] += static_cast<double>(x[i]);
  }
  EXPECT_TRUE(near(backward<float>(x, weight, x, rows).dbias, sums, 1e-3, 0));
}

TEST(LayerNorm, RowsDoNotDependOnEachOther) {
  const std::vector<float> x = random_values<float>(205, 13, -3, 3);
  const std::vector<float> weight = random_values<float>(41, 14, 0.5, 2);
  const std::vector<float> all = forward<float>(x, weight, weight, 5).y;
  for (int64_t row = 0; row < 5; ++row) {
    const auto at = x.begin() + row * 41;
    EXPECT_TRUE(same_bits(forward<float>({at, at + 41}, weight, weight, 1).y,
                          {all.begin() + row * 41, all.begin() + (row + 1) * 41}));
  }
}

}  // namespace
}  // namespace chargrad::kernels
