#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "tests/error_text.h"
#include "tests/sanitized.h"

namespace chargrad {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<double> values(const Tensor& x) {
  return x.to_vector<double>();
}

constexpr DType kAll[] = {kFloat32, kFloat64, kBFloat16, kInt64, kBool};

TEST(Factories, ConstantsInEveryDtype) {
  for (const DType dtype : kAll) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3}, Shape{2, 3, 4}}) {
      const Tensor made[] = {zeros(shape, dtype), ones(shape, dtype), full(shape, 1, dtype)};
      for (const Tensor& x : made) {
        EXPECT_EQ(x.shape(), shape);
        EXPECT_EQ(x.dtype(), dtype);
        EXPECT_TRUE(x.is_contiguous());
        EXPECT_FALSE(x.requires_grad());
      }
      EXPECT_THAT(values(made[0]), Each(0.0));
      EXPECT_THAT(values(made[1]), Each(1.0));
      EXPECT_THAT(values(made[2]), Each(1.0));
    }
  }
  EXPECT_EQ(full({}, 2.5, kFloat64).item(), 2.5);
  EXPECT_EQ(full({}, -2.5, kInt64).item(), -2);
  EXPECT_EQ(full({}, 2.5, kBool).item(), 1);
  // 257 needs nine bits, bfloat16 has eight; the even neighbour is 256.
  EXPECT_EQ(full({}, 257, kBFloat16).item(), 256);
}

TEST(Factories, LikeAnotherIsContiguousAndOutsideTheGraph) {
  Tensor x = zeros({2, 3}, kFloat64);
  x.set_requires_grad();
  const Tensor y = x.transpose(0, 1);
  const Tensor made[] = {empty_like(y), zeros_like(y), ones_like(y), full_like(y, 7)};
  for (const Tensor& like : made) {
    EXPECT_EQ(like.shape(), (Shape{3, 2}));
    EXPECT_EQ(like.dtype(), kFloat64);
    EXPECT_TRUE(like.is_contiguous());
    EXPECT_FALSE(like.requires_grad());
  }
  EXPECT_THAT(values(made[1]), Each(0.0));
  EXPECT_THAT(values(made[2]), Each(1.0));
  EXPECT_THAT(values(made[3]), Each(7.0));
}

TEST(Factories, Arange) {
  EXPECT_EQ(arange(4).dtype(), kInt64);
  EXPECT_THAT(values(arange(4)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values(arange(0)), ElementsAre());
  EXPECT_THAT(values(arange(3, 3)), ElementsAre());
  EXPECT_THAT(values(arange(3, kFloat32)), ElementsAre(0, 1, 2));
  EXPECT_THAT(values(arange(5, 1, -2)), ElementsAre(5, 3));
  EXPECT_THAT(values(arange(5, 0, -2)), ElementsAre(5, 3, 1));
  EXPECT_THAT(values(arange(1, 2, 0.25, kFloat64)), ElementsAre(1, 1.25, 1.5, 1.75));
  // Each element is rounded once: no error adds up.
  const std::vector<double> tenths = values(arange(0, 1, 0.1, kFloat64));
  ASSERT_EQ(tenths.size(), 10u);
  for (size_t i = 0; i < tenths.size(); ++i) {
    EXPECT_EQ(tenths[i], 0.1 * static_cast<double>(i));
  }
}

TEST(Factories, Eye) {
  EXPECT_THAT(values(eye(3)), ElementsAreArray({1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_THAT(values(eye(2, 3)), ElementsAreArray({1, 0, 0, 0, 1, 0}));
  EXPECT_THAT(values(eye(3, 2, kInt64)), ElementsAreArray({1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(eye(3, 2, kInt64).dtype(), kInt64);
  EXPECT_EQ(eye(0).shape(), (Shape{0, 0}));
}

TEST(Factories, ListedNumbers) {
  const Tensor vector = tensor({1, 2.5, -3});
  EXPECT_EQ(vector.shape(), Shape{3});
  EXPECT_EQ(vector.dtype(), kFloat32);
  EXPECT_THAT(values(vector), ElementsAre(1, 2.5, -3));
  const Tensor matrix = tensor({{1, 2, 3}, {4, 5, 6}}, kInt64);
  EXPECT_EQ(matrix.shape(), (Shape{2, 3}));
  EXPECT_EQ(matrix.dtype(), kInt64);
  EXPECT_THAT(values(matrix), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(scalar(2.5, kFloat64).shape(), Shape{});
  EXPECT_EQ(scalar(2.5, kFloat64).item(), 2.5);
}

// Rows of one number could be numbers as well.
TEST(Factories, ListedColumnsAndNothing) {
  const Tensor column = tensor({{1}, {2}, {3}});
  EXPECT_EQ(column.shape(), (Shape{3, 1}));
  EXPECT_THAT(values(column), ElementsAre(1, 2, 3));
  const double x = 2.5;
  EXPECT_EQ(tensor({{x}, {1}}, kFloat64).shape(), (Shape{2, 1}));
  EXPECT_EQ(tensor({{x}}).shape(), (Shape{1, 1}));
  EXPECT_EQ(tensor({x}).shape(), Shape{1});
  EXPECT_EQ(tensor({}).shape(), Shape{0});
  EXPECT_EQ(tensor({{}, {}}).shape(), (Shape{2, 0}));
}

// Towards zero, from the first number that fits to the last.
TEST(Factories, IntegersLoseTheFraction) {
  EXPECT_THAT(values(full({2}, 1.7, kInt64)), Each(1));
  EXPECT_THAT(values(full_like(zeros({2}, kInt64), -1.7)), Each(-1));
  EXPECT_EQ(scalar(-0.5, kInt64).item(), 0);
  EXPECT_THAT(values(tensor({1.7, -1.7}, kInt64)), ElementsAre(1, -1));
  EXPECT_THAT(values(tensor({{1.7}, {-1.7}}, kInt64)), ElementsAre(1, -1));
  EXPECT_THAT(values(from_vector(std::vector<float>{2.5f}, {1}, kInt64)), ElementsAre(2));
  EXPECT_EQ(scalar(-0x1p63, kInt64).item<int64_t>(), std::numeric_limits<int64_t>::min());
}

TEST(Factories, FromVectorTakesEveryType) {
  EXPECT_THAT(values(from_vector(std::vector<float>{1.5f, 2}, {2, 1})), ElementsAre(1.5, 2));
  EXPECT_EQ(from_vector(std::vector<double>{1}, {}).dtype(), kFloat64);
  EXPECT_EQ(from_vector(std::vector<bfloat16>{1.0f}, {1}).dtype(), kBFloat16);
  EXPECT_EQ(from_vector(std::vector<int64_t>{7}, {1}).dtype(), kInt64);
  const Tensor flags = from_vector(std::vector<bool>{true, false, true}, {3});
  EXPECT_EQ(flags.dtype(), kBool);
  EXPECT_THAT(values(flags), ElementsAre(1, 0, 1));
  for (const DType dtype : kAll) {
    EXPECT_THAT(values(from_vector(std::vector<double>{1, 0}, {2}, dtype)), ElementsAre(1, 0));
    EXPECT_THAT(values(from_vector(std::vector<float>{1, 0}, {2}, dtype)), ElementsAre(1, 0));
    EXPECT_THAT(values(from_vector(std::vector<int64_t>{1, 0}, {2}, dtype)), ElementsAre(1, 0));
    EXPECT_THAT(values(from_vector(std::vector<bool>{true, false}, {2}, dtype)), ElementsAre(1, 0));
    EXPECT_THAT(values(from_vector(std::vector<bfloat16>{1.0f, 0.0f}, {2}, dtype)),
                ElementsAre(1, 0));
  }
}

template <class F>
void expect_error(F f, const std::string& message) {
  try {
    f();
    ADD_FAILURE() << "no error: " << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), message);
  }
}

TEST(Factories, BadArgumentsAreRefused) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect_error([] { zeros({2, -3}); }, "shape: sizes must not be negative, got [2, -3]");
  expect_error([] { empty({int64_t{1} << 62}); }, "shape: too many bytes in [4611686018427387904]");
  expect_error([] { full({1}, 1e30, kInt64); }, "full: 1e+30 does not fit into int64");
  expect_error([] { full({1}, 0x1p63, kInt64); },
               "full: 9.223372036854776e+18 does not fit into int64");
  expect_error([] { full({1}, NAN, kInt64); }, "full: nan does not fit into int64");
  expect_error([=] { full_like(zeros({1}, kInt64), -infinity); },
               "full_like: -inf does not fit into int64");
  expect_error([] { scalar(NAN, kInt64); }, "scalar: nan does not fit into int64");
  expect_error([] { tensor({1, NAN}, kInt64); }, "tensor: nan does not fit into int64");
  expect_error([=] { tensor({{1}, {infinity}}, kInt64); }, "tensor: inf does not fit into int64");
  expect_error([] { from_vector(std::vector<float>{1e30f}, {1}, kInt64); },
               "from_vector: 1.0000000150474662e+30 does not fit into int64");
  expect_error([] { arange(0, 5, -1); },
               "arange: end must lie on step's side of start, got start 0, end 5, step -1");
  expect_error([] { arange(0, 5, 0); },
               "arange: end must lie on step's side of start, got start 0, end 5, step 0");
  expect_error([=] { arange(infinity); },
               "arange: too large a range, got start 0, end inf, step 1");
  expect_error([] { arange(3, kBool); }, "arange: the dtype must not be bool");
  expect_error([] { eye(-1); }, "shape: sizes must not be negative, got [-1, -1]");
  expect_error(
      [] {
        tensor({{1, 2}, {3, 4, 5}});
      },
      "tensor: rows must be equally long, got 2 and 3");
  expect_error(
      [] {
        from_vector(std::vector<double>{1, 2, 3}, {2, 2});
      },
      "from_vector: shape [2, 2] needs 4 values, got 3");
}

TEST(Factories, MoreThanTheMemoryIsRefusedWithItsSize) {
  const auto message = [](int64_t size) {
    return error_text<std::runtime_error>([size] { zeros({size, 1}, kFloat64); });
  };
  const int64_t in_use = memory_stats().in_use;
  EXPECT_EQ(message((int64_t{1} << 60) - 1),
            "tensor: out of memory, cannot allocate 9223372036854775800 bytes for shape "
            "[1152921504606846975, 1]");
  if (!kSanitized) {
    EXPECT_EQ(message(int64_t{1} << 45),
              "tensor: out of memory, cannot allocate 281474976710656 bytes for shape "
              "[35184372088832, 1]");
  }
  EXPECT_EQ(memory_stats().in_use, in_use);
}

}  // namespace
}  // namespace chargrad
