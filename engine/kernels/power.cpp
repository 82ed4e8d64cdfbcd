// x^exponent and its gradient (declared in elementwise.h).
#include <cmath>

#include "engine/kernels/elementwise.h"

namespace chargrad::kernels {

namespace {

// Calls use(f) with f(x) = x^exponent, by products, roots and quotients where those do.
template <class S, class Use>
void with_power(double exponent, Use use) {
  if (exponent == 1) {
    use([](S v) { return v; });
  } else if (exponent == 2) {
    use([](S v) { return v * v; });
  } else if (exponent == 3) {
    use([](S v) { return v * v * v; });
  } else if (exponent == 0.5) {
    use([](S v) { return std::sqrt(v); });
  } else if (exponent == -0.5) {
    use([](S v) { return S{1} / std::sqrt(v); });
  } else if (exponent == -1) {
    use([](S v) { return S{1} / v; });
  } else if (exponent == -2) {
    use([](S v) { return S{1} / (v * v); });
  } else {
    const auto e = static_cast<S>(exponent);
    use([e](S v) { return std::pow(v, e); });
  }
}

int64_t integer_power(int64_t base, int64_t exponent) {
  auto square = static_cast<uint64_t>(base);
  uint64_t product = 1;
  for (; exponent > 0; exponent >>= 1) {
    product *= (exponent & 1) != 0 ? square : 1;
    square *= square;
  }
  return static_cast<int64_t>(product);
}

}  // namespace

template <class S>
void pow(const Strided<2>& space, S* y, const S* x, double exponent) {
  with_power<S>(exponent, [&](auto power) { map(space, y, power, x); });
}

void pow(const Strided<2>& space, int64_t* y, const int64_t* x, int64_t exponent) {
  const auto f = [exponent](int64_t v) { return integer_power(v, exponent); };
  map(space, y, f, x);
}

template <class S>
void pow_backward(const Strided<3>& space, S* dx, const S* dy, const S* x, double exponent) {
  if (exponent == 0) {  // 0 * x^-1 would be NaN at x = 0.
    const auto f = [](S /*g*/, S /*v*/) { return S{0}; };
    map(space, dx, f, dy, x);
    return;
  }
  const auto e = static_cast<S>(exponent);
  with_power<S>(exponent - 1, [&](auto power) {
    const auto f = [e, power](S g, S v) { return g * (e * power(v)); };
    map(space, dx, f, dy, x);
  });
}

template void pow<float>(const Strided<2>&, float*, const float*, double);
template void pow<double>(const Strided<2>&, double*, const double*, double);
template void pow_backward<float>(const Strided<3>&, float*, const float*, const float*, double);
template void pow_backward<double>(const Strided<3>&, double*, const double*, const double*,
                                   double);

}  // namespace chargrad::kernels
