// add, sub and mul of elementwise.h: a formula handed to map(), and over runs of float and bfloat16
// the same in Highway vectors.
#include <cstdint>
#include <type_traits>

#include "engine/dtype.h"
#include "engine/kernels/cpu.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/highway.h"
#include "engine/kernels/mixed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/elementwise_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/lanes_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {  // Nothing of a target may be visible to the linker.

struct Add {
  HWY_INLINE V operator()(V a, V b) const { return hn::Add(a, b); }
};
struct Sub {
  HWY_INLINE V operator()(V a, V b) const { return hn::Sub(a, b); }
};
struct Mul {
  HWY_INLINE V operator()(V a, V b) const { return hn::Mul(a, b); }
};

template <class F, class A, class B>
void binary_lanes(Sum<A, B>* y, const A* a, int64_t a_step, const B* b, int64_t b_step, int64_t n) {
  const F f;
  if (a_step == 1 && b_step == 1) {
    for_lanes(n, [&](auto lanes, int64_t i) {
      lanes.store(f(lanes.load(a + i), lanes.load(b + i)), y + i);
    });
  } else if (a_step == 1) {
    const V same = set(*b);
    for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(f(lanes.load(a + i), same), y + i); });
  } else if (b_step == 1) {
    const V same = set(*a);
    for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(f(same, lanes.load(b + i)), y + i); });
  } else {
    const V value = f(set(*a), set(*b));
    for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(value, y + i); });
  }
}

template <class A, class B>
HWY_INLINE BinaryFunctions<A, B> functions() {
  return {&binary_lanes<Add, A, B>, &binary_lanes<Sub, A, B>, &binary_lanes<Mul, A, B>};
}

BinaryTable binary_table() {
  return {
      {functions<float, float>(), functions<float, bfloat16>(), functions<bfloat16, bfloat16>()},
      functions<bfloat16, float>()};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(binary_table);

namespace {

template <class S>
constexpr bool has_lanes = std::is_same_v<S, float> || std::is_same_v<S, bfloat16>;

// y = f(a, b): by `vectors` where the inner loops allow it. The same bits either way.
template <class A, class B, class F>
void binary(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b,
            typename BinaryFunctions<A, B>::Run BinaryFunctions<A, B>::*vectors, F f) {
  if constexpr (has_lanes<A> && has_lanes<B>) {
    const auto& step = space.inner().stride;
    const bool dense =
        step[0] == 1 && (step[1] == 0 || step[1] == 1) && (step[2] == 0 || step[2] == 1);
    if (dense && active_tier() != Tier::kRef) {
      const BinaryFunctions<A, B> table = HWY_DYNAMIC_DISPATCH(binary_table)();
      const auto run = table.*vectors;
      space.parallel_runs([&](const auto& at, int64_t n) {
        run(y + at[0], a + at[1], step[1], b + at[2], step[2], n);
      });
      return;
    }
  }
  map(space, y, f, a, b);
}

// f in what both operands compute in. Whole numbers wrap around; done unsigned, where that is
// defined.
template <class A, class B, class F>
auto in_common_type(F f) {
  using S = Sum<A, B>;
  using C = std::conditional_t<std::is_same_v<S, int64_t>, uint64_t, Wide<S>>;
  return [f](A u, B v) { return static_cast<S>(f(static_cast<C>(u), static_cast<C>(v))); };
}

}  // namespace

template <class A, class B>
void add(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b) {
  binary(space, y, a, b, &BinaryFunctions<A, B>::add,
         in_common_type<A, B>([](auto u, auto v) { return u + v; }));
}

template <class A, class B>
void sub(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b) {
  binary(space, y, a, b, &BinaryFunctions<A, B>::sub,
         in_common_type<A, B>([](auto u, auto v) { return u - v; }));
}

template <class A, class B>
void mul(const Strided<3>& space, Sum<A, B>* y, const A* a, const B* b) {
  binary(space, y, a, b, &BinaryFunctions<A, B>::mul,
         in_common_type<A, B>([](auto u, auto v) { return u * v; }));
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot stand in them.
#define BINARY(A, B)                                                          \
  template void add<A, B>(const Strided<3>&, Sum<A, B>*, const A*, const B*); \
  template void sub<A, B>(const Strided<3>&, Sum<A, B>*, const A*, const B*); \
  template void mul<A, B>(const Strided<3>&, Sum<A, B>*, const A*, const B*);
BINARY(float, float)
BINARY(float, bfloat16)
BINARY(bfloat16, float)
BINARY(bfloat16, bfloat16)
BINARY(double, double)
BINARY(int64_t, int64_t)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
#endif  // HWY_ONCE
