// Tensors of random numbers, new ones and in place; the streams are those of kernels/random.h.
#include "engine/kernels/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/check.h"
#include "engine/ops.h"
#include "engine/ops_common.h"

namespace chargrad {
namespace {

// The dims of x in the order of its memory, the widest stride first: the order in which PyTorch
// fills a tensor in place.
Tensor in_memory_order(const Tensor& x) {
  std::vector<size_t> order(x.shape().size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return x.strides()[a] > x.strides()[b]; });
  Shape shape, strides;
  for (const size_t dim : order) {
    shape.push_back(x.shape()[dim]);
    strides.push_back(x.strides()[dim]);
  }
  return as_strided(x, shape, strides, x.storage_offset());
}

// Fills x by draw(y, n), y float or double; other dtypes are drawn as float and converted.
template <class Draw>
Tensor fill_in_place(const char* op, const Tensor& x, Draw draw) {
  begin_in_place(op, x);
  const Tensor target = in_memory_order(x);
  const DType drawn = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const bool direct = x.dtype() == drawn && target.is_contiguous();
  const Tensor y = direct ? target : empty(target.shape(), drawn);
  visit_floating(drawn, [&]<class S>() { draw(y.data<S>(), y.numel()); });
  if (!direct) {
    copy_(target, y);
  }
  return x;
}

void check_probability(const char* op, double p) {
  CHARGRAD_CHECK(p >= 0 && p <= 1, op, ": p must be in [0, 1], got ", p);
}

}  // namespace

Tensor uniform_(const Tensor& x, double from, double to, Generator& generator) {
  check_floating("uniform_", x);
  const double most = x.dtype() == kFloat64 ? std::numeric_limits<double>::max()
                                            : double{std::numeric_limits<float>::max()};
  CHARGRAD_CHECK(from >= -most && to <= most && from <= to && to - from <= most,
                 "uniform_: from <= to and a finite range are required, got from ", from,
                 " and to ", to);
  return fill_in_place("uniform_", x, [&](auto* y, int64_t n) {
    kernels::uniform(generator.stream(), y, n, from, to);
    if (x.dtype() == kBFloat16) {  // What rounds up to the excluded end becomes the other end.
      const bfloat16 end = static_cast<float>(to);
      std::replace_if(
          y, y + n, [=](auto v) { return bfloat16(static_cast<float>(v)) >= end; }, from);
    }
  });
}

namespace {

// The scheme of kernels::normal without its n % 16 draws that the last block overwrites: PyTorch
// leaves them out for bfloat16.
template <class S>
void normal_bfloat16(kernels::RandomStream& stream, S* y, int64_t n, double mean, double std) {
  const int64_t rest = n < kernels::kNormalBlock ? 0 : n % kernels::kNormalBlock;
  kernels::normal(stream, y, n - rest, mean, std);
  if (rest != 0) {
    kernels::normal(stream, y + n - kernels::kNormalBlock, kernels::kNormalBlock, mean, std);
  }
}

}  // namespace

Tensor normal_(const Tensor& x, double mean, double std, Generator& generator) {
  check_floating("normal_", x);
  CHARGRAD_CHECK(std >= 0, "normal_: std must not be negative, got ", std);
  return fill_in_place("normal_", x, [&](auto* y, int64_t n) {
    if (!x.is_contiguous()) {
      kernels::normal_serial(generator.stream(), y, n, mean, std);
    } else if (x.dtype() == kBFloat16) {
      normal_bfloat16(generator.stream(), y, n, mean, std);
    } else {
      kernels::normal(generator.stream(), y, n, mean, std);
    }
  });
}

Tensor bernoulli_(const Tensor& x, double p, Generator& generator) {
  check_probability("bernoulli_", p);
  return fill_in_place("bernoulli_", x, [&](auto* y, int64_t n) {
    kernels::bernoulli(generator.stream(), y, n, p);
  });
}

Tensor exponential_(const Tensor& x, double lambda, Generator& generator) {
  check_floating("exponential_", x);
  CHARGRAD_CHECK(lambda > 0, "exponential_: lambda must be positive, got ", lambda);
  return fill_in_place("exponential_", x, [&](auto* y, int64_t n) {
    kernels::exponential(generator.stream(), y, n, lambda);
  });
}

Tensor rand(const Shape& shape, DType dtype, Generator& generator) {
  CHARGRAD_CHECK(is_floating(dtype), "rand: the dtype must be floating, got ", dtype_name(dtype));
  return uniform_(empty(shape, dtype), 0, 1, generator);
}

Tensor randn(const Shape& shape, DType dtype, Generator& generator) {
  CHARGRAD_CHECK(is_floating(dtype), "randn: the dtype must be floating, got ", dtype_name(dtype));
  return normal_(empty(shape, dtype), 0, 1, generator);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, Generator& generator) {
  CHARGRAD_CHECK(low < high, "randint: low must be below high, got low ", low, " and high ", high);
  Tensor y = empty(shape, kInt64);
  kernels::integers(generator.stream(), y.data<int64_t>(), y.numel(), low,
                    static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
  return y;
}

Tensor randperm(int64_t n, Generator& generator) {
  CHARGRAD_CHECK(n >= 0, "randperm: n must not be negative, got ", n);
  Tensor y = empty({n}, kInt64);
  kernels::permutation(generator.stream(), y.data<int64_t>(), n);
  return y;
}

Tensor bernoulli(const Tensor& p, Generator& generator) {
  check_floating("bernoulli", p, "p");
  const NoGradGuard no_grad;
  if (p.dtype() == kBFloat16) {
    return via_float32(p, [&](const Tensor& wide) { return bernoulli(wide, generator); });
  }
  const Tensor source = p.contiguous();
  Tensor y = empty_like(source);
  visit_floating(p.dtype(), [&]<class S>() {
    const S* x = source.data<S>();
    const S* bad = std::find_if_not(x, x + p.numel(), [](S v) { return v >= 0 && v <= 1; });
    CHARGRAD_CHECK(bad == x + p.numel(), "bernoulli: p must be in [0, 1], got ", *bad,
                   " at element ", bad - x, " of shape ", p.shape());
    kernels::bernoulli(generator.stream(), x, y.data<S>(), p.numel());
  });
  return y;
}

namespace {

// Throws unless row `i` of `cols` weights can give that many samples.
template <class S>
void check_weights(const S* p, int64_t i, int64_t cols, int64_t distinct) {
  const S* bad = std::find_if_not(p, p + cols, [](S v) { return v >= 0 && std::isfinite(v); });
  CHARGRAD_CHECK(bad == p + cols, "multinomial: weights must be finite and not negative, got ",
                 *bad, " at column ", bad - p, " of row ", i);
  const int64_t positive = std::count_if(p, p + cols, [](S v) { return v > 0; });
  CHARGRAD_CHECK(positive > 0, "multinomial: the weights of row ", i, " are all zero");
  CHARGRAD_CHECK(distinct <= positive, "multinomial: ", distinct,
                 " samples without replacement need as many positive weights, row ", i, " has ",
                 positive);
}

}  // namespace

Tensor multinomial(const Tensor& p, int64_t num_samples, bool replacement, Generator& generator) {
  check_floating("multinomial", p, "p");
  CHARGRAD_CHECK(p.dim() == 1 || p.dim() == 2, "multinomial: p must have 1 or 2 dims, got shape ",
                 p.shape());
  CHARGRAD_CHECK(num_samples > 0, "multinomial: num_samples must be positive, got ", num_samples);
  const NoGradGuard no_grad;
  const Tensor source = p.dtype() == kBFloat16 ? p.to(kFloat32) : p.contiguous();
  const int64_t cols = p.size(-1), rows = p.dim() == 2 ? p.size(0) : 1;
  Tensor y = empty(p.dim() == 2 ? Shape{rows, num_samples} : Shape{num_samples}, kInt64);
  visit_floating(source.dtype(), [&]<class S>() {
    const S* weights = source.data<S>();
    for (int64_t i = 0; i < rows; ++i) {
      check_weights(weights + i * cols, i, cols, replacement ? 1 : num_samples);
    }
    kernels::multinomial(generator.stream(), weights, y.data<int64_t>(), rows, cols, num_samples,
                         replacement);
  });
  return y;
}

}  // namespace chargrad
