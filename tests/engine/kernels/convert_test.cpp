#include "engine/kernels/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "engine/threads.h"

namespace chargrad::kernels {
namespace {

uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}
float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// Nearest, ties to even, by choosing between the two neighbours in double: independent of the
// trick with integers that the kernels use.
uint16_t nearest_bfloat16(float x) {
  if (std::isnan(x)) {
    return static_cast<uint16_t>((bits_of(x) >> 16) | 0x40u);
  }
  if (std::isinf(x)) {
    return static_cast<uint16_t>(bits_of(x) >> 16);
  }
  const uint32_t down = bits_of(x) & 0xffff0000u;
  const uint32_t up = down + 0x10000u;
  const double below = float_of(down);
  // Past the largest bfloat16 the next step counts as one more unit, then becomes infinity.
  const double above =
      std::isinf(float_of(up)) ? std::copysign(std::ldexp(1.0, 128), x) : float_of(up);
  const double to_below = std::abs(x - below), to_above = std::abs(above - x);
  const bool take_up = to_above < to_below || (to_above == to_below && ((down >> 16) & 1u) != 0);
  return static_cast<uint16_t>((take_up ? up : down) >> 16);
}

std::vector<float> interesting_floats() {
  std::vector<float> x;
  // Every upper half, with lower halves around the tie and at the ends.
  for (uint32_t upper = 0; upper < 0x10000u; upper += 7) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(float_of((upper << 16) | lower));
    }
  }
  for (const float v :
       {0.0f, -0.0f, 1.0f, INFINITY, -INFINITY, NAN, -NAN, std::numeric_limits<float>::max(),
        std::numeric_limits<float>::lowest(), std::numeric_limits<float>::denorm_min(),
        float_of(0x7f800001u), float_of(0xff800001u), float_of(0x7fffffffu)}) {
    x.push_back(v);
  }
  return x;
}

TEST(Convert, ToBfloat16RoundsToNearestEven) {
  const std::vector<float> x = interesting_floats();
  std::vector<bfloat16> y(x.size());
  to_bfloat16(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i].bits, nearest_bfloat16(x[i])) << i << ": " << std::hex << bits_of(x[i]);
  }
}

TEST(Convert, RoundToBfloat16IsTheSameAsFloats) {
  std::vector<float> x = interesting_floats();
  std::vector<float> y(x.size());
  round_to_bfloat16(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(y[i]), static_cast<uint32_t>(nearest_bfloat16(x[i])) << 16)
        << i << ": " << std::hex << bits_of(x[i]);
  }
  round_to_bfloat16(x.data(), x.data(), static_cast<int64_t>(x.size()));  // In place.
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(x[i]), bits_of(y[i])) << i;
  }
}

TEST(Convert, ToFloatIsExactForEveryBfloat16) {
  std::vector<bfloat16> x(0x10000);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i].bits = static_cast<uint16_t>(i);
  }
  std::vector<float> y(x.size());
  to_float(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(y[i]), static_cast<uint32_t>(i) << 16);
  }
}

// All lengths up to two vectors and some more, unaligned, with guards on both sides.
TEST(Convert, OddLengthsTouchNothingElse) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t n = 0; n <= 35; ++n) {
    for (const int64_t offset : {0, 1, 3}) {
      const auto size = static_cast<size_t>(n + offset + 1);
      std::vector<float> x(size), rounded(size, 7.0f), back(size, 7.0f);
      std::vector<bfloat16> y(size, bfloat16(7.0f));
      for (float& v : x) {
        v = normal(random);
      }
      round_to_bfloat16(x.data() + offset, rounded.data() + offset, n);
      to_bfloat16(x.data() + offset, y.data() + offset, n);
      to_float(y.data() + offset, back.data() + offset, n);
      for (size_t i = 0; i < size; ++i) {
        const bool inside =
            static_cast<int64_t>(i) >= offset && static_cast<int64_t>(i) < offset + n;
        const float expected =
            inside ? float_of(static_cast<uint32_t>(nearest_bfloat16(x[i])) << 16) : 7.0f;
        ASSERT_EQ(rounded[i], expected) << "n " << n << " offset " << offset << " at " << i;
        ASSERT_EQ(static_cast<float>(y[i]), expected) << "n " << n << " offset " << offset;
        ASSERT_EQ(back[i], expected) << "n " << n << " offset " << offset << " at " << i;
      }
    }
  }
}

TEST(Convert, SeveralChunks) {
  const int64_t n = 3 * 16384 + 5;
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 1.0f + static_cast<float>(i) / 65536.0f;
  }
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    std::vector<bfloat16> y(x.size());
    std::vector<float> rounded(x.size()), back(x.size());
    to_bfloat16(x.data(), y.data(), n);
    to_float(y.data(), back.data(), n);
    round_to_bfloat16(x.data(), rounded.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i].bits, nearest_bfloat16(x[i])) << i;
      ASSERT_EQ(back[i], rounded[i]) << i;
      ASSERT_EQ(rounded[i], static_cast<float>(y[i])) << i;
    }
  }
  set_num_threads(0);
}

}  // namespace
}  // namespace chargrad::kernels
