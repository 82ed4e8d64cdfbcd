// Gradient kernels of elementwise.h.
#include "engine/kernels/elementwise.h"

namespace chargrad::kernels {

template <class S>
void div_backward(const Strided<4>& space, S* db, const S* dy, const S* a, const S* b) {
  const auto f = [](S g, S u, S v) { return -g * ((u / v) / v); };
  map(space, db, f, dy, a, b);
}

template <class S>
void maximum_backward(const Strided<4>& space, S* da, const S* dy, const S* a, const S* b) {
  const auto f = [](S g, S u, S v) { return u < v ? S{0} : u == v ? g / 2 : g; };
  map(space, da, f, dy, a, b);
}

template <class S>
void minimum_backward(const Strided<4>& space, S* da, const S* dy, const S* a, const S* b) {
  const auto f = [](S g, S u, S v) { return u > v ? S{0} : u == v ? g / 2 : g; };
  map(space, da, f, dy, a, b);
}

template <class S>
void abs_backward(const Strided<3>& space, S* dx, const S* dy, const S* x) {
  const auto f = [](S g, S v) { return g * static_cast<S>((v > 0) - (v < 0)); };
  map(space, dx, f, dy, x);
}

template <class S>
void clamp_backward(const Strided<3>& space, S* dx, const S* dy, const S* x, S low, S high) {
  const auto f = [low, high](S g, S v) { return ((v >= low) & (v <= high)) ? g : S{0}; };
  map(space, dx, f, dy, x);
}

// The element types that each function is built for.
// NOLINTBEGIN(bugprone-macro-parentheses): a type or a template's name cannot stand in them.
#define BACKWARD(S)                                                                       \
  template void div_backward<S>(const Strided<4>&, S*, const S*, const S*, const S*);     \
  template void maximum_backward<S>(const Strided<4>&, S*, const S*, const S*, const S*); \
  template void minimum_backward<S>(const Strided<4>&, S*, const S*, const S*, const S*); \
  template void abs_backward<S>(const Strided<3>&, S*, const S*, const S*);               \
  template void clamp_backward<S>(const Strided<3>&, S*, const S*, const S*, S, S);
BACKWARD(float)
BACKWARD(double)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace chargrad::kernels
