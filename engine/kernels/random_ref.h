// The arithmetic of random.h on numbers already drawn, element by element: words to uniforms,
// uniforms to normals.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace chargrad::kernels::ref {

// The low 24 bits as a float in [0, 1).
inline float uniform24(uint32_t word) {
  return static_cast<float>(word & 0xffffffu) * 0x1p-24f;
}
// The low 53 bits as a double in [0, 1).
inline double uniform53(uint64_t word) {
  return static_cast<double>(word & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

// x_i = x_i * scale + shift, rounded once.
template <class S>
void scale_shift(S* x, int64_t n, S scale, S shift) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::fma(x[i], scale, shift);
  }
}

// Natural logarithm of a positive normal float: a polynomial in the mantissa around 1 (that of the
// Cephes library), with every product and sum fused as in PyTorch's AVX2 build.
inline float log_poly(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  float e = static_cast<float>(static_cast<int32_t>(bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  if (m < 0.707106781186547524f) {
    e -= 1.0f;
    m = (m - 1.0f) + m;
  } else {
    m = m - 1.0f;
  }
  const float z = m * m;
  float y = 7.0376836292e-2f;
  y = std::fma(y, m, -1.1514610310e-1f);
  y = std::fma(y, m, 1.1676998740e-1f);
  y = std::fma(y, m, -1.2420140846e-1f);
  y = std::fma(y, m, 1.4249322787e-1f);
  y = std::fma(y, m, -1.6668057665e-1f);
  y = std::fma(y, m, 2.0000714765e-1f);
  y = std::fma(y, m, -2.4999993993e-1f);
  y = std::fma(y, m, 3.3333331174e-1f);
  y = y * m;
  y = std::fma(y, z, e * -2.12194440e-4f);
  y = std::fma(-z, 0.5f, y);
  return std::fma(e, 0.693359375f, m + y);
}

// Sine and cosine of t >= 0, likewise: the octant of t, then a polynomial on [-pi/4, pi/4].
inline void sincos_poly(float t, float* sine, float* cosine) {
  const int32_t j = (static_cast<int32_t>(t * 1.27323954473516f) + 1) & ~1;
  const auto octants = static_cast<float>(j);
  // pi/4 in three parts.
  float a = std::fma(-octants, 0.78515625f, t);
  a = std::fma(-octants, 2.4187564849853515625e-4f, a);
  a = std::fma(-octants, 3.77489497744594108e-8f, a);
  const float z = a * a;
  float c = std::fma(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = std::fma(c, z, 4.166664568298827e-2f) * z;
  c = std::fma(c, z, -(0.5f * z)) + 1.0f;
  float s = std::fma(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = std::fma(s, z, -1.6666654611e-1f) * z;
  s = std::fma(s, a, a);
  const bool swapped = (j & 2) != 0;
  *sine = swapped ? c : s;
  *cosine = swapped ? s : c;
  if ((j & 4) != 0) {
    *sine = -*sine;
  }
  if (((j - 2) & 4) == 0) {
    *cosine = -*cosine;
  }
}

// Box-Muller on one block of 16 uniforms in place; x[j] and x[j + 8] make a pair.
inline void normal_block(float* x, float mean, float std) {
  for (int j = 0; j < 8; ++j) {
    const float radius = std::sqrt(-2.0f * log_poly(1.0f - x[j]));
    float sine = 0, cosine = 0;
    sincos_poly(static_cast<float>(2 * std::numbers::pi) * x[j + 8], &sine, &cosine);
    x[j] = std::fma(radius * cosine, std, mean);
    x[j + 8] = std::fma(radius * sine, std, mean);
  }
}
inline void normal_block(double* x, double mean, double std) {
  for (int j = 0; j < 8; ++j) {
    const double radius = std::sqrt(-2 * std::log(1 - x[j]));
    const double theta = 2 * std::numbers::pi * x[j + 8];
    x[j] = std::fma(radius * std::cos(theta), std, mean);
    x[j + 8] = std::fma(radius * std::sin(theta), std, mean);
  }
}

// The same on `blocks` blocks one after the other.
template <class S>
void normal_blocks(S* x, int64_t blocks, S mean, S std) {
  for (int64_t b = 0; b < blocks; ++b) {
    normal_block(x + b * 16, mean, std);
  }
}

}  // namespace chargrad::kernels::ref
