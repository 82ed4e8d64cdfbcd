// The float arithmetic of random.h by Highway: eight lanes, the pairs of one block, on every
// target, and bit for bit what random_ref.h computes.
#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/random.h"
#include "engine/kernels/random_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/random_simd.cpp"
#include <hwy/foreach_target.h>  // must come before <hwy/highway.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 8>;
using Ints = hn::Rebind<int32_t, Floats>;
using VF = hn::Vec<Floats>;

VF constant(float value) {
  return hn::Set(Floats(), value);
}

// See ref::log_poly.
VF log_poly(VF x) {
  const Floats d;
  const Ints di;
  const auto bits = hn::BitCast(di, x);
  auto e = hn::ConvertTo(d, hn::Sub(hn::ShiftRight<23>(bits), hn::Set(di, 126)));
  auto m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f000000)));
  const auto small = hn::Lt(m, constant(0.707106781186547524f));
  const auto one = constant(1.0f);
  e = hn::Sub(e, hn::IfThenElseZero(small, one));
  m = hn::Add(hn::Sub(m, one), hn::IfThenElseZero(small, m));
  const auto z = hn::Mul(m, m);
  auto y = constant(7.0376836292e-2f);
  y = hn::MulAdd(y, m, constant(-1.1514610310e-1f));
  y = hn::MulAdd(y, m, constant(1.1676998740e-1f));
  y = hn::MulAdd(y, m, constant(-1.2420140846e-1f));
  y = hn::MulAdd(y, m, constant(1.4249322787e-1f));
  y = hn::MulAdd(y, m, constant(-1.6668057665e-1f));
  y = hn::MulAdd(y, m, constant(2.0000714765e-1f));
  y = hn::MulAdd(y, m, constant(-2.4999993993e-1f));
  y = hn::MulAdd(y, m, constant(3.3333331174e-1f));
  y = hn::Mul(y, m);
  y = hn::MulAdd(y, z, hn::Mul(e, constant(-2.12194440e-4f)));
  y = hn::NegMulAdd(z, constant(0.5f), y);
  return hn::MulAdd(e, constant(0.693359375f), hn::Add(m, y));
}

// See ref::sincos_poly.
void sincos_poly(VF t, VF* sine, VF* cosine) {
  const Floats d;
  const Ints di;
  const auto one = hn::Set(di, 1);
  const auto j =
      hn::AndNot(one, hn::Add(hn::ConvertTo(di, hn::Mul(t, constant(1.27323954473516f))), one));
  const auto octants = hn::ConvertTo(d, j);
  auto a = hn::NegMulAdd(octants, constant(0.78515625f), t);
  a = hn::NegMulAdd(octants, constant(2.4187564849853515625e-4f), a);
  a = hn::NegMulAdd(octants, constant(3.77489497744594108e-8f), a);
  const auto z = hn::Mul(a, a);
  auto c = hn::MulAdd(constant(2.443315711809948e-5f), z, constant(-1.388731625493765e-3f));
  c = hn::Mul(hn::MulAdd(c, z, constant(4.166664568298827e-2f)), z);
  c = hn::Add(hn::MulSub(c, z, hn::Mul(constant(0.5f), z)), constant(1.0f));
  auto s = hn::MulAdd(constant(-1.9515295891e-4f), z, constant(8.3321608736e-3f));
  s = hn::Mul(hn::MulAdd(s, z, constant(-1.6666654611e-1f)), z);
  s = hn::MulAdd(s, a, a);
  const auto two = hn::Set(di, 2), four = hn::Set(di, 4);
  const auto swapped = hn::RebindMask(d, hn::TestBit(j, two));
  // Bit 2 moved to the sign's place.
  const auto flip_sine = hn::ShiftLeft<29>(hn::And(j, four));
  const auto flip_cosine = hn::ShiftLeft<29>(hn::AndNot(hn::Sub(j, two), four));
  *sine = hn::Xor(hn::IfThenElse(swapped, c, s), hn::BitCast(d, flip_sine));
  *cosine = hn::Xor(hn::IfThenElse(swapped, s, c), hn::BitCast(d, flip_cosine));
}

void normal_blocks_floats(float* x, int64_t blocks, float mean, float std) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));  // 8, or 4 where vectors are short.
  const auto center = constant(mean), width = constant(std);
  for (const float* end = x + blocks * 16; x < end; x += 16) {
    for (int64_t j = 0; j < 8; j += lanes) {
      const auto u1 = hn::Sub(constant(1.0f), hn::LoadU(d, x + j));
      const auto theta = hn::Mul(constant(6.283185307179586f), hn::LoadU(d, x + j + 8));
      const auto radius = hn::Sqrt(hn::Mul(constant(-2.0f), log_poly(u1)));
      auto sine = radius, cosine = radius;
      sincos_poly(theta, &sine, &cosine);
      hn::StoreU(hn::MulAdd(hn::Mul(radius, cosine), width, center), d, x + j);
      hn::StoreU(hn::MulAdd(hn::Mul(radius, sine), width, center), d, x + j + 8);
    }
  }
}

void scale_shift_floats(float* x, int64_t n, float scale, float shift) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vscale = constant(scale), vshift = constant(shift);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), vscale, vshift), d, x + i);
  }
  if (i < n) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
    const auto last = hn::MaskedLoad(mask, d, x + i);
    hn::BlendedStore(hn::MulAdd(last, vscale, vshift), mask, d, x + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(normal_blocks_floats);
HWY_EXPORT(scale_shift_floats);

template <>
void scale_shift<double>(double* x, int64_t n, double scale, double shift) {
  ref::scale_shift(x, n, scale, shift);
}
template <>
void scale_shift<float>(float* x, int64_t n, float scale, float shift) {
  if (active_tier() == Tier::kRef) {
    ref::scale_shift(x, n, scale, shift);
    return;
  }
  HWY_DYNAMIC_DISPATCH(scale_shift_floats)(x, n, scale, shift);
}

template <>
void normal_blocks<double>(double* x, int64_t blocks, double mean, double std) {
  ref::normal_blocks(x, blocks, mean, std);
}
template <>
void normal_blocks<float>(float* x, int64_t blocks, float mean, float std) {
  if (active_tier() == Tier::kRef) {
    ref::normal_blocks(x, blocks, mean, std);
    return;
  }
  HWY_DYNAMIC_DISPATCH(normal_blocks_floats)(x, blocks, mean, std);
}

}  // namespace chargrad::kernels
#endif
