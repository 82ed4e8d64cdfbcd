// Element types and the switch from a run-time DType to a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/check.h"

namespace chargrad {

// The upper half of a float32. Conversion from float rounds to nearest, ties to even; a NaN
// stays a (quiet) NaN.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): converts as freely as float and double do.
  bfloat16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

enum class DType : uint8_t { kFloat32, kFloat64, kBFloat16, kInt64, kBool };

// Short names for call sites: zeros({2, 3}, kFloat64).
inline constexpr DType kFloat32 = DType::kFloat32;
inline constexpr DType kFloat64 = DType::kFloat64;
inline constexpr DType kBFloat16 = DType::kBFloat16;
inline constexpr DType kInt64 = DType::kInt64;
inline constexpr DType kBool = DType::kBool;

template <class S>
struct dtype_of_impl;
template <>
struct dtype_of_impl<float> {
  static constexpr DType value = kFloat32;
};
template <>
struct dtype_of_impl<double> {
  static constexpr DType value = kFloat64;
};
template <>
struct dtype_of_impl<bfloat16> {
  static constexpr DType value = kBFloat16;
};
template <>
struct dtype_of_impl<int64_t> {
  static constexpr DType value = kInt64;
};
template <>
struct dtype_of_impl<bool> {
  static constexpr DType value = kBool;
};
// The DType whose elements are stored as S.
template <class S>
inline constexpr DType dtype_of = dtype_of_impl<S>::value;

// Bytes of one element.
constexpr int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
      return 2;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kBool:
      return 1;
  }
  return 0;
}

// PyTorch's spelling: "float32", "float64", "bfloat16", "int64", "bool".
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype != kInt64 && dtype != kBool;
}

// The dtype that arithmetic on a and b is done in: bool < int64 < bfloat16 < float32 < float64.
// As torch.promote_types.
constexpr DType promote_types(DType a, DType b) {
  constexpr auto rank = [](DType d) {
    return d == kBool ? 0 : d == kInt64 ? 1 : d == kBFloat16 ? 2 : d == kFloat32 ? 3 : 4;
  };
  return rank(a) < rank(b) ? b : a;
}

// Calls f.template operator()<S>() with S = float or double, the types that kernels compute in.
// Ops that do not list bfloat16 upcast it before they get here.
template <class F>
decltype(auto) visit_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return std::forward<F>(f).template operator()<float>();
    case DType::kFloat64:
      return std::forward<F>(f).template operator()<double>();
    default:
      detail::fail_check("dtype: a float32 or float64 tensor is required, got ", dtype_name(dtype));
  }
}

// The same with bfloat16, for the kernels that widen what they read and round what they write.
template <class F>
decltype(auto) visit_any_floating(DType dtype, F&& f) {
  return dtype == kBFloat16 ? std::forward<F>(f).template operator()<bfloat16>()
                            : visit_floating(dtype, std::forward<F>(f));
}

// What kernels compute in, and keep parameters and sums in, beside elements of S.
template <class S>
using Wide = std::conditional_t<std::is_same_v<S, bfloat16>, float, S>;

// Calls f.template operator()<X, Y>() for a kernel that reads X and writes Y: two equal types of
// those, or float and bfloat16, as autocast has it.
template <class F>
decltype(auto) visit_mixed(DType x, DType y, F&& f) {
  if (x == kFloat32 && y == kBFloat16) {
    return std::forward<F>(f).template operator()<float, bfloat16>();
  }
  return visit_any_floating(x, [&f]<class S>() { return f.template operator()<S, S>(); });
}

// Calls f.template operator()<S>() with S = any of the five element types.
template <class F>
decltype(auto) visit_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return std::forward<F>(f).template operator()<float>();
    case DType::kFloat64:
      return std::forward<F>(f).template operator()<double>();
    case DType::kBFloat16:
      return std::forward<F>(f).template operator()<bfloat16>();
    case DType::kInt64:
      return std::forward<F>(f).template operator()<int64_t>();
    case DType::kBool:
      return std::forward<F>(f).template operator()<bool>();
  }
  detail::fail_check("dtype: unknown value ", static_cast<int>(dtype));
}

}  // namespace chargrad
