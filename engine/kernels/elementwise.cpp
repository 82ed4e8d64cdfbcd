// Forward kernels of elementwise.h: each a formula handed to map(). (Sums and products:
// elementwise_simd.cpp.)
#include "engine/kernels/elementwise.h"

#include <cmath>
#include <type_traits>

#include "engine/dtype.h"

namespace chargrad::kernels {

template <class S>
void div(const Strided<3>& space, S* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u / v; };
  map(space, y, f, a, b);
}

template <class S>
void maximum(const Strided<3>& space, S* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return ((u > v) | (u != u)) ? u : v; };
  map(space, y, f, a, b);
}

template <class S>
void minimum(const Strided<3>& space, S* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return ((u < v) | (u != u)) ? u : v; };
  map(space, y, f, a, b);
}

template <class S>
void neg(const Strided<2>& space, S* y, const S* x) {
  if constexpr (std::is_same_v<S, int64_t>) {
    const auto f = [](S v) { return static_cast<S>(0 - static_cast<uint64_t>(v)); };
    map(space, y, f, x);
  } else {
    const auto f = [](S v) { return -v; };
    map(space, y, f, x);
  }
}

template <class S>
void abs(const Strided<2>& space, S* y, const S* x) {
  if constexpr (std::is_same_v<S, int64_t>) {
    const auto f = [](S v) { return v < 0 ? static_cast<S>(0 - static_cast<uint64_t>(v)) : v; };
    map(space, y, f, x);
  } else {
    const auto f = [](S v) { return std::fabs(v); };
    map(space, y, f, x);
  }
}

template <class S>
void clamp(const Strided<2>& space, S* y, const S* x, S low, S high) {
  const auto f = [low, high](S v) {
    const S raised = v < low ? low : v;
    return raised > high ? high : raised;
  };
  map(space, y, f, x);
}

template <class S>
void where(const Strided<4>& space, S* y, const bool* cond, const S* a, const S* b) {
  const auto f = [](bool c, S u, S v) { return c ? u : v; };
  map(space, y, f, cond, a, b);
}

template <class S>
void eq(const Strided<3>& space, bool* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u == v; };
  map(space, y, f, a, b);
}

template <class S>
void ne(const Strided<3>& space, bool* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u != v; };
  map(space, y, f, a, b);
}

template <class S>
void lt(const Strided<3>& space, bool* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u < v; };
  map(space, y, f, a, b);
}

template <class S>
void le(const Strided<3>& space, bool* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u <= v; };
  map(space, y, f, a, b);
}

template <class S>
void gt(const Strided<3>& space, bool* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u > v; };
  map(space, y, f, a, b);
}

template <class S>
void ge(const Strided<3>& space, bool* y, const S* a, const S* b) {
  const auto f = [](S u, S v) { return u >= v; };
  map(space, y, f, a, b);
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type or a template's name cannot stand in them.
#define BINARY(f, S) template void f<S>(const Strided<3>&, S*, const S*, const S*);
#define UNARY(f, S) template void f<S>(const Strided<2>&, S*, const S*);
#define COMPARE(f, S) template void f<S>(const Strided<3>&, bool*, const S*, const S*);
#define NUMBERS(DEFINE, f) DEFINE(f, float) DEFINE(f, double) DEFINE(f, int64_t)
NUMBERS(BINARY, maximum)
NUMBERS(BINARY, minimum)
BINARY(div, float)
BINARY(div, double)
NUMBERS(UNARY, neg)
NUMBERS(UNARY, abs)
NUMBERS(COMPARE, eq)
NUMBERS(COMPARE, ne)
NUMBERS(COMPARE, lt)
NUMBERS(COMPARE, le)
NUMBERS(COMPARE, gt)
NUMBERS(COMPARE, ge)
COMPARE(eq, bool)
COMPARE(ne, bool)
COMPARE(lt, bool)
COMPARE(le, bool)
COMPARE(gt, bool)
COMPARE(ge, bool)
template void clamp<float>(const Strided<2>&, float*, const float*, float, float);
template void clamp<double>(const Strided<2>&, double*, const double*, double, double);
template void clamp<int64_t>(const Strided<2>&, int64_t*, const int64_t*, int64_t, int64_t);
#define WHERE(S) template void where<S>(const Strided<4>&, S*, const bool*, const S*, const S*);
WHERE(float)
WHERE(double)
WHERE(bfloat16)
WHERE(int64_t)
WHERE(bool)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
