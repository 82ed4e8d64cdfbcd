#include "engine/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/kernels/softmax_ref.h"
#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

enum class Form { kPlain, kLog };

std::vector<float> forward(Form form, const std::vector<float>& x, int64_t rows,
                           EmptyRow empty_row = EmptyRow::kNaN) {
  const int64_t cols = rows == 0 ? 0 : static_cast<int64_t>(x.size()) / rows;
  Guarded<float> in(x), out(static_cast<int64_t>(x.size()));
  if (form == Form::kPlain) {
    softmax_forward(in.data(), out.data(), rows, cols, empty_row);
  } else {
    log_softmax_forward(in.data(), out.data(), rows, cols);
  }
  EXPECT_TRUE(out.intact());
  return out.get();
}

std::vector<float> backward(Form form, const std::vector<float>& y, const std::vector<float>& dy,
                            int64_t rows) {
  const int64_t cols = rows == 0 ? 0 : static_cast<int64_t>(y.size()) / rows;
  Guarded<float> in(y), up(dy), out(static_cast<int64_t>(y.size()));
  const auto run = form == Form::kPlain ? softmax_backward<float> : log_softmax_backward<float>;
  run(in.data(), up.data(), out.data(), rows, cols);
  EXPECT_TRUE(out.intact());
  return out.get();
}

std::vector<double> ref_forward(Form form, const std::vector<double>& x, int64_t rows) {
  std::vector<double> y(x.size());
  const int64_t cols = static_cast<int64_t>(x.size()) / rows;
  if (form == Form::kPlain) {
    ref::softmax_forward(x.data(), y.data(), rows, cols, EmptyRow::kNaN);
  } else {
    ref::log_softmax_forward(x.data(), y.data(), rows, cols);
  }
  return y;
}

std::vector<double> ref_backward(Form form, const std::vector<double>& y,
                                 const std::vector<double>& dy, int64_t rows) {
  std::vector<double> dx(y.size());
  const auto run =
      form == Form::kPlain ? ref::softmax_backward<double> : ref::log_softmax_backward<double>;
  run(y.data(), dy.data(), dx.data(), rows, static_cast<int64_t>(y.size()) / rows);
  return dx;
}

TEST(Softmax, AgreesWithDoubleAtOddLengths) {
  std::vector<int64_t> lengths = odd_lengths();
  lengths.push_back(2 * 2048 + 37);  // Several blocks of a sum.
  for (const int64_t cols : lengths) {
    if (cols == 0) {
      continue;
    }
    const std::vector<float> x = random_values<float>(3 * cols, 1, -6, 6);
    const std::vector<float> dy = random_values<float>(3 * cols, 2, -1, 1);
    for (const Form form : {Form::kPlain, Form::kLog}) {
      const std::vector<float> y = forward(form, x, 3);
      // Relative: x - max rounds by 6e-8 * 12 before the exponential, which adds 1.2e-7; the sum
      // and the scale 3e-7. The logarithm turns that into an absolute error, and adds two
      // roundings of values up to 20.
      const double absolute = form == Form::kPlain ? 0 : 2e-6;
      const double relative = form == Form::kPlain ? 1.5e-6 : 0;
      EXPECT_TRUE(near(y, ref_forward(form, to_double(x), 3), absolute, relative)) << cols;
      // sum(y dy) and sum(dy) have the error of 32 or fewer additions of values below 1, and log
      // softmax's is up to sqrt(cols) large.
      const double gradient = form == Form::kPlain ? 3e-7 : 1e-6 * std::sqrt(cols);
      EXPECT_TRUE(near(backward(form, y, dy, 3), ref_backward(form, to_double(y), to_double(dy), 3),
                       gradient, 5e-7))
          << cols;
    }
  }
}

TEST(Softmax, NoRowsNoColumns) {
  EXPECT_TRUE(forward(Form::kPlain, {}, 0).empty());
  EXPECT_TRUE(forward(Form::kPlain, {}, 3).empty());
  EXPECT_TRUE(forward(Form::kLog, {}, 3).empty());
  EXPECT_TRUE(backward(Form::kPlain, {}, {}, 3).empty());
  EXPECT_TRUE(backward(Form::kLog, {}, {}, 3).empty());
}

TEST(Softmax, LargeAndInfiniteValues) {
  // exp(-1), exp(0), exp(-2), exp(1) over their sum.
  EXPECT_TRUE(near(forward(Form::kPlain, {1000, 1001, 999, 1002}, 1),
                   {0.08714432, 0.23688282, 0.03205860, 0.64391426}, 2e-7, 0));
  EXPECT_EQ(forward(Form::kPlain, {-kInf, 0}, 1), (std::vector<float>{0, 1}));
  EXPECT_EQ(forward(Form::kLog, {-40, 94}, 1), (std::vector<float>{-134, 0}));
  EXPECT_EQ(forward(Form::kLog, {-kInf, 0}, 1), (std::vector<float>{-kInf, 0}));
  EXPECT_EQ(backward(Form::kLog, {-kInf, 0}, {1, 1}, 1), (std::vector<float>{1, -1}));
  for (const Form form : {Form::kPlain, Form::kLog}) {
    EXPECT_EQ(forward(form, {3e38f, -3e38f}, 1)[0], form == Form::kPlain ? 1 : 0);
    for (const std::vector<float>& row :
         {std::vector<float>{-kInf, -kInf, -kInf}, {1, kInf, 2}, {1, std::nanf(""), 2}}) {
      for (const float y : forward(form, row, 1)) {
        EXPECT_TRUE(std::isnan(y));
      }
    }
  }
}

TEST(Softmax, EmptyRowsAsZeros) {
  const std::vector<float> x = {-kInf, -kInf, -kInf, 1, -kInf, 1, 1, std::nanf(""), -kInf};
  const std::vector<float> y = forward(Form::kPlain, x, 3, EmptyRow::kZero);
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 6),
            (std::vector<float>{0, 0, 0, 0.5, 0, 0.5}));
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_TRUE(std::isnan(forward(Form::kPlain, {-kInf, std::nanf("")}, 1, EmptyRow::kZero)[0]));
  EXPECT_EQ(backward(Form::kPlain, {0, 0, 0}, {1, 2, 3}, 1), (std::vector<float>{0, 0, 0}));
}

TEST(Softmax, InPlace) {
  const std::vector<float> x = random_values<float>(111, 3, -3, 3);
  for (const bool log : {false, true}) {
    Guarded<float> y(x);
    (log ? log_softmax_forward(y.data(), y.data(), int64_t{3}, int64_t{37})
         : softmax_forward(y.data(), y.data(), int64_t{3}, int64_t{37}));
    EXPECT_TRUE(same_bits(y.get(), forward(log ? Form::kLog : Form::kPlain, x, 3)));
  }
}

TEST(Softmax, RefGradientIsTheDerivative) {
  const std::vector<double> x = random_values<double>(28, 4, -2, 2);
  const std::vector<double> dy = random_values<double>(28, 5, -1, 1);
  for (const Form form : {Form::kPlain, Form::kLog}) {
    const auto value = [&](const std::vector<double>& at) {
      return dot(ref_forward(form, at, 4), dy);
    };
    const std::vector<double> dx = ref_backward(form, ref_forward(form, x, 4), dy, 4);
    // h^2 / 6 = 1.7e-11 times derivatives below 10; rounding 1e-15 * 50 / 1e-5.
    EXPECT_TRUE(near(dx, central_differences(value, x), 5e-9, 0));
  }
}

TEST(Softmax, SameForAllThreadCounts) {
  const int64_t rows = 700;
  const std::vector<float> x = random_values<float>(rows * 77, 6, -3, 3);
  for (const Form form : {Form::kPlain, Form::kLog}) {
    EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return forward(form, x, rows); }));
    EXPECT_TRUE(same_for_all_thread_counts<float>([&] { return backward(form, x, x, rows); }));
  }
}

// A row alone gives the bits that it has among others: decoding one token at a time relies on it.
TEST(Softmax, RowsDoNotDependOnEachOther) {
  const std::vector<float> x = random_values<float>(205, 7, -3, 3);
  const std::vector<float> all = forward(Form::kPlain, x, 5);
  for (int64_t row = 0; row < 5; ++row) {
    const auto at = x.begin() + row * 41;
    EXPECT_TRUE(same_bits(forward(Form::kPlain, {at, at + 41}, 1),
                          {all.begin() + row * 41, all.begin() + (row + 1) * 41}));
  }
}

}  // namespace
}  // namespace chargrad::kernels
