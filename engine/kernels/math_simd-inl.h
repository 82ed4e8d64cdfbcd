// Vector exp, log, tanh, logistic and normal distribution of float, once per Highway target.
// Included inside foreach_target loops only; the bounds below are tested in unary_test.cpp and
// gelu_test.cpp over a sweep of all exponents.
//
//   vec_exp      <= 1 ulp; 0 below -103.98, inf above 88.73, subnormal results in between
//   vec_log      <= 1 ulp; log(0) = -inf, log(negative) = NaN, subnormal arguments are exact
//   vec_tanh     <= 2 ulp
//   vec_sigmoid  <= 3 ulp, also in the tail that goes to 0
//   vec_normal   <= 1e-7 absolute in the distribution function; its tail keeps a relative error of
//                2e-7 + 6e-8 * x^2, because x^2 is rounded before the exponential
//
// A NaN gives a NaN, an infinity the limit. The polynomials are minimax fits of this project
// (iteratively reweighted least squares on Chebyshev nodes, then rounded to float).
#if defined(CHARGRAD_KERNELS_MATH_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHARGRAD_KERNELS_MATH_SIMD_INL_H_
#undef CHARGRAD_KERNELS_MATH_SIMD_INL_H_
#else
#define CHARGRAD_KERNELS_MATH_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cfloat>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.
namespace hn = hwy::HWY_NAMESPACE;

// Horner's rule: sum * x^n + next * x^(n-1) + ...
template <class D, class V, class... Rest>
HWY_INLINE V horner_step(D d, V x, V sum, float next, Rest... rest) {
  sum = hn::MulAdd(sum, x, hn::Set(d, next));
  if constexpr (sizeof...(rest) > 0) {
    return horner_step(d, x, sum, rest...);
  } else {
    return sum;
  }
}

// The coefficients from the highest power down.
template <class D, class V, class... Rest>
HWY_INLINE V horner(D d, V x, float highest, Rest... rest) {
  return horner_step(d, x, hn::Set(d, highest), rest...);
}

// exp(x) = 2^k exp(r) with k = round(x / ln 2), |r| <= ln 2 / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Beyond these the result is 0 or inf all the same. The order of the operands lets a NaN
  // through on x86; elsewhere Min and Max return it anyway.
  x = hn::Max(hn::Set(d, -105.0f), hn::Min(hn::Set(d, 89.0f), x));
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the sum.
  const V shifter = hn::Set(d, 0x1.8p23f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0f), shifter);
  const V k = hn::Sub(shifted, shifter);
  V r = hn::NegMulAdd(k, hn::Set(d, 0x1.62e400p-1f), x);  // ln 2 in two parts: k times the
  r = hn::NegMulAdd(k, hn::Set(d, 0x1.7f7d1cp-20f), r);   // first has no rounding error.
  const V p =
      horner(d, r, 0x1.6a2318p-10f, 0x1.123a8ep-7f, 0x1.5558f6p-5f, 0x1.555490p-3f, 0x1.fffffcp-2f);
  const V exp_r = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), p, r));
  // Two factors, as 2^k alone may be below or above the range of float.
  const auto bias = hn::Set(di, 127);
  const auto ki = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, shifter));
  const auto half = hn::ShiftRight<1>(ki);
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(ki, half), bias)));
  return hn::Mul(hn::Mul(exp_r, scale1), scale2);
}

// log(x) = e ln 2 + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V inf = hn::Set(d, INFINITY);
  const auto subnormal = hn::Lt(x, hn::Set(d, FLT_MIN));
  const V scaled = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p23f)), x);
  const auto sqrt_half = hn::Set(di, 0x3f3504f3);  // the bits of sqrt(1/2)
  const auto offset = hn::Sub(hn::BitCast(di, scaled), sqrt_half);
  const auto mantissa = hn::Add(hn::And(offset, hn::Set(di, 0x007fffff)), sqrt_half);
  const V e = hn::Sub(hn::ConvertTo(d, hn::ShiftRight<23>(offset)),
                      hn::IfThenElseZero(subnormal, hn::Set(d, 23.0f)));
  const V f = hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f));
  const V p = horner(d, f, -0x1.38b576p-4f, 0x1.055b68p-3f, -0x1.0d8542p-3f, 0x1.22da1ep-3f,
                     -0x1.547244p-3f, 0x1.99a008p-3f, -0x1.000226p-2f, 0x1.555554p-2f);
  const V f2 = hn::Mul(f, f);
  V tail = hn::MulAdd(hn::Mul(f2, f), p, hn::Mul(e, hn::Set(d, -0x1.bd0106p-13f)));
  tail = hn::NegMulAdd(hn::Set(d, 0.5f), f2, tail);
  // ln 2 = 0x1.63p-1 (exact times e) - 0x1.bd0106p-13.
  V y = hn::MulAdd(e, hn::Set(d, 0x1.63p-1f), hn::Add(f, tail));
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  const V at_zero = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(inf), hn::Set(d, NAN));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), y, at_zero);
}

// An odd polynomial near 0, where 1 - exp(-2 |x|) would cancel.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V magnitude = hn::Abs(x);
  const V e = vec_exp(d, hn::Mul(magnitude, hn::Set(d, -2.0f)));
  const V large = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  const V x2 = hn::Mul(x, x);
  const V p = horner(d, x2, -0x1.75e1cep-8f, 0x1.52269cp-6f, -0x1.b83c5ap-5f, 0x1.110726p-3f,
                     -0x1.555532p-2f);
  const V small = hn::MulAdd(hn::Mul(x2, x), p, x);
  // The sign last: the polynomial makes +0 of -0.
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, large), x);
}

// sigmoid(x) with e = exp(-|x|), which never overflows: 1 / (1 + e), or e / (1 + e) for x < 0.
template <class D>
struct Sigmoid {
  hn::Vec<D> value;       // sigmoid(x)
  hn::Vec<D> derivative;  // sigmoid(x) (1 - sigmoid(x))
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Sigmoid<D> vec_sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = vec_exp(d, hn::Neg(hn::Abs(x)));
  const V r = hn::Div(one, hn::Add(one, e));
  const V er = hn::Mul(e, r);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), er, r), hn::Mul(er, r)};
}

// Phi(-a) = exp(-a^2 / 2) Q(t), t = 1 / (1 + 0.265 a), a >= 0: the exponential carries the whole
// decay, and gelu's derivative needs it anyhow.
template <class D>
struct Normal {
  hn::Vec<D> cdf;    // Phi(x) = (1 + erf(x / sqrt(2))) / 2
  hn::Vec<D> decay;  // exp(-x^2 / 2), the density times sqrt(2 pi)
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Normal<D> vec_normal(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V decay = vec_exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  const V t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.265f), one));
  const V q =
      horner(d, t, 0x1.f5c06ep-6f, -0x1.257adep-3f, 0x1.ba4454p-3f, -0x1.d41e48p-4f, 0x1.17aa32p-3f,
             0x1.f2d9fep-5f, 0x1.a410d0p-4f, 0x1.af2c36p-4f, 0x1.b11cd6p-4f);
  const V tail = hn::Mul(decay, hn::Mul(q, t));
  return {hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, tail), tail), decay};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
