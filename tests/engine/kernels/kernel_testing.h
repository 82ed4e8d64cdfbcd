// What the kernel tests share: inputs, guarded unaligned arrays, comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/dtype.h"
#include "engine/kernels/cpu.h"
#include "engine/threads.h"

namespace chargrad::kernels {

// From no element over every tail of the widest vector to more than four vectors.
inline std::vector<int64_t> odd_lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 0; n <= 35; ++n) {
    lengths.push_back(n);
  }
  lengths.insert(lengths.end(), {63, 64, 65, 79, 131});
  return lengths;
}

// Uniform in [low, high), the same on every run.
template <class S>
std::vector<S> random_values(int64_t n, uint32_t seed, double low, double high) {
  std::mt19937 generator(seed);
  std::vector<S> values(static_cast<size_t>(n));
  for (S& value : values) {
    value = static_cast<S>(low + (high - low) * (static_cast<double>(generator()) / 4294967296.0));
  }
  return values;
}

template <class S>
std::vector<double> to_double(const std::vector<S>& x) {
  return {x.begin(), x.end()};
}

// What rounding to bfloat16 adds to a relative error: half a unit of its eighth digit.
inline constexpr double kBFloat16Rounding = 0x1p-8;
// The same for a kernel that writes Y.
template <class Y>
constexpr double rounding_of = std::is_same_v<Y, bfloat16> ? kBFloat16Rounding : 0;

// n elements at an address that is aligned to one element only, between marks that no kernel may
// touch.
template <class S>
class Guarded {
 public:
  explicit Guarded(int64_t n) : values_(static_cast<size_t>(n + 2 * kMarks + 1), S(kMark)) {}
  explicit Guarded(const std::vector<S>& x) : Guarded(static_cast<int64_t>(x.size())) {
    for (size_t i = 0; i < x.size(); ++i) {
      data()[i] = x[i];
    }
  }

  S* data() { return values_.data() + kMarks + 1; }
  std::vector<S> get() const { return {values_.begin() + kMarks + 1, values_.end() - kMarks}; }
  bool intact() const {
    for (int64_t i = 0; i < kMarks; ++i) {
      if (values_[static_cast<size_t>(i)] != S(kMark) ||
          values_[values_.size() - 1 - static_cast<size_t>(i)] != S(kMark)) {
        return false;
      }
    }
    return values_[kMarks] == S(kMark);
  }

 private:
  static constexpr int64_t kMarks = 20;
  static constexpr double kMark = 12345;
  std::vector<S> values_;
};

// |got - want| in units of the last place of `want` as a float.
inline double ulps(float got, double want) {
  if (std::isnan(want) || std::isinf(static_cast<float>(want))) {
    const auto limit = static_cast<float>(want);
    const bool same = std::isnan(want) ? std::isnan(got) : got == limit;
    return same ? 0 : HUGE_VAL;
  }
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// An error in units of the tolerance absolute + relative |want|. A NaN must meet a NaN, an infinity
// the same one.
inline double error_in_tolerances(double got, double want, double absolute, double relative) {
  if (!std::isfinite(want) || !std::isfinite(got)) {
    return (std::isnan(want) && std::isnan(got)) || want == got ? 0 : HUGE_VAL;
  }
  const double error = std::abs(got - want);
  return error == 0 ? 0 : error / (absolute + relative * std::abs(want));
}

// Whether a comparison with that tolerance fails if the result is 1 % larger or smaller than `got`;
// a bfloat16 than what it was before it was rounded, about `want`.
template <class S>
bool catches_one_percent(S got, double want, double absolute, double relative) {
  const double right = std::is_same_v<S, bfloat16> ? want : static_cast<double>(got);
  for (const double factor : {0.99, 1.01}) {
    const S wrong = static_cast<S>(right * factor);
    if (error_in_tolerances(static_cast<double>(wrong), want, absolute, relative) <= 1) {
      return false;
    }
  }
  return true;
}

// What near() makes of a tolerance that would not notice its largest element 1 % off.
enum class OnePercent {
  kFails,   // an error: each comparison catches a kernel that is 1 % off, on the tier it runs on
  kPasses,  // for what is compared in another way besides
};

// Every |got_i - want_i| <= absolute + relative |want_i|; a NaN must meet a NaN, an infinity the
// same one. Prints the tier and the worst element.
template <class S>
testing::AssertionResult near(const std::vector<S>& got, const std::vector<double>& want,
                              double absolute, double relative,
                              OnePercent one_percent = OnePercent::kFails) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << "sizes " << got.size() << " and " << want.size();
  }
  size_t worst = 0, largest = 0;
  double excess = -1, most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error =
        error_in_tolerances(static_cast<double>(got[i]), want[i], absolute, relative);
    if (error > excess) {
      excess = error;
      worst = i;
    }
    if (std::isfinite(want[i]) && std::abs(want[i]) > most) {
      most = std::abs(want[i]);
      largest = i;
    }
  }
  if (excess > 1) {
    return testing::AssertionFailure()
           << "tier " << tier_name(active_tier()) << ", index " << worst << " of " << got.size()
           << ": got " << static_cast<double>(got[worst]) << ", expected " << want[worst] << ", "
           << excess << " times the tolerance";
  }
  if (one_percent == OnePercent::kFails && most > 0 &&
      !catches_one_percent(got[largest], want[largest], absolute, relative)) {
    return testing::AssertionFailure()
           << "tier " << tier_name(active_tier()) << ", index " << largest << " of " << got.size()
           << ": an error of 1 % of " << want[largest] << " is within the tolerance "
           << absolute + relative * most;
  }
  return testing::AssertionSuccess();
}

template <class S>
bool same_bits(const std::vector<S>& a, const std::vector<S>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(S)) == 0);
}

// Runs f with 1, 2, 3 and 7 threads; the arrays that it returns must agree to the last bit.
template <class S>
testing::AssertionResult same_for_all_thread_counts(const std::function<std::vector<S>()>& f) {
  std::vector<S> first;
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    const std::vector<S> result = f();
    set_num_threads(0);
    if (threads == 1) {
      first = result;
    } else if (!same_bits(first, result)) {
      return testing::AssertionFailure() << "1 and " << threads << " threads differ";
    }
  }
  return testing::AssertionSuccess();
}

// d/dx_i of f at x by central differences with step h: the error is about
// h^2 |f'''| / 6 + 1e-16 |f| / h.
inline std::vector<double> central_differences(
    const std::function<double(const std::vector<double>&)>& f, std::vector<double> x,
    double h = 1e-5) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + h;
    const double above = f(x);
    x[i] = at - h;
    const double below = f(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * h);
  }
  return gradient;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

}  // namespace chargrad::kernels
