// Arithmetic element by element, with broadcasting by stride 0: an operand that is one number is a
// pointer to it with stride 0 in every dim. Operands are in the order of the arguments, output
// first; the output may be one of the inputs. S is float, double or int64_t unless stated.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/kernels/mixed.h"
#include "engine/kernels/strided.h"

namespace chargrad::kernels {

// What a and b make together: bfloat16 beside float gives float.
template <class A, class B>
using Sum = std::conditional_t<std::is_same_v<A, B>, A, float>;

// A and B also bfloat16, or that and float; what is bfloat16 is rounded once.
template <class A, class B>
void add(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b);
template <class A, class B>
void sub(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b);
template <class A, class B>
void mul(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b);

// One target's loops over n elements, for the choice in elementwise_simd.cpp: y is dense, an
// operand steps by 1 or, where it is one number, by 0.
template <class A, class B>
struct BinaryFunctions {
  using Run = void (*)(Sum<A, B>* y, const A* a, int64_t a_step, const B* b, int64_t b_step,
                       int64_t n);
  Run add, sub, mul;
};
struct BinaryTable : MixedTable<BinaryFunctions>, BinaryFunctions<bfloat16, float> {};

// float, double.
template <class S>
void div(const Strided<3>& space, S* y, const S* a, const S* b);

// The larger, or smaller, of each pair; a NaN on either side gives NaN.
template <class S>
void maximum(const Strided<3>& space, S* y, const S* a, const S* b);
template <class S>
void minimum(const Strided<3>& space, S* y, const S* a, const S* b);

// y = -x and y = |x|.
template <class S>
void neg(const Strided<2>& space, S* y, const S* x);
template <class S>
void abs(const Strided<2>& space, S* y, const S* x);

// y = x^exponent; 2, 3, 0.5, -0.5, -1 and -2 are done by products, roots and quotients. float,
// double.
template <class S>
void pow(const Strided<2>& space, S* y, const S* x, double exponent);
// The same for whole numbers, modulo 2^64. Requires: exponent >= 0.
void pow(const Strided<2>& space, int64_t* y, const int64_t* x, int64_t exponent);

// y = min(max(x, low), high): where low > high it is high; NaN stays. A missing bound is the
// infinity, or the extreme value, of S.
template <class S>
void clamp(const Strided<2>& space, S* y, const S* x, S low, S high);

// y = cond ? a : b. S is any of the five element types. A masked fill is one whose `a` is one
// number.
template <class S>
void where(const Strided<4>& space, S* y, const bool* cond, const S* a, const S* b);

// Comparisons; NaN is unequal to everything. S is float, double, int64_t or bool.
template <class S>
void eq(const Strided<3>& space, bool* y, const S* a, const S* b);
template <class S>
void ne(const Strided<3>& space, bool* y, const S* a, const S* b);
template <class S>
void lt(const Strided<3>& space, bool* y, const S* a, const S* b);
template <class S>
void le(const Strided<3>& space, bool* y, const S* a, const S* b);
template <class S>
void gt(const Strided<3>& space, bool* y, const S* a, const S* b);
template <class S>
void ge(const Strided<3>& space, bool* y, const S* a, const S* b);

// Gradients; S is float or double.

// y = a / b: db = -dy * a / b^2. (da is dy / b.)
template <class S>
void div_backward(const Strided<4>& space, S* db, const S* dy, const S* a, const S* b);
// y = maximum(a, b), or minimum: da = dy where a wins, dy / 2 at a tie, else 0. A pair with a NaN
// passes dy to both. Call with a and b exchanged for db.
template <class S>
void maximum_backward(const Strided<4>& space, S* da, const S* dy, const S* a, const S* b);
template <class S>
void minimum_backward(const Strided<4>& space, S* da, const S* dy, const S* a, const S* b);
// dx = dy * sign(x); 0 at 0.
template <class S>
void abs_backward(const Strided<3>& space, S* dx, const S* dy, const S* x);
// dx = dy * exponent * x^(exponent - 1); 0 for exponent 0, also at x = 0.
template <class S>
void pow_backward(const Strided<3>& space, S* dx, const S* dy, const S* x, double exponent);
// dx = dy where low <= x <= high, else 0.
template <class S>
void clamp_backward(const Strided<3>& space, S* dx, const S* dy, const S* x, S low, S high);

}  // namespace chargrad::kernels
