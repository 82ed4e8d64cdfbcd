#include "engine/gradcheck.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/ops.h"

namespace chargrad {
namespace {

// An input's largest gradient counts as at least this much in the relative error, so that the
// rounding of a gradient that is 0 in truth does not look like a fault.
constexpr double kSmallestScale = 1e-3;

// Numbers of magnitude [0.5, 1.5) and both signs: no element of the result is overlooked, and no
// symmetry of f (as of softmax, whose rows always sum to 1) can hide a fault.
std::vector<double> projection(int64_t n) {
  uint64_t state = 20170630;  // any fixed seed; splitmix64 mixes it
  std::vector<double> weights(static_cast<size_t>(n));
  for (double& weight : weights) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t bits = state;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    const double magnitude = 0.5 + static_cast<double>(bits >> 11) * 0x1p-53;
    weight = (bits & 1) != 0 ? magnitude : -magnitude;
  }
  return weights;
}

bool is_checked(const Tensor& input) {
  return input.defined() && input.requires_grad();
}

// Calls visit(index, offset from the first element) for every element, in row-major order.
template <class Visit>
void for_each_element(const Tensor& x, Visit&& visit) {
  const Shape& shape = x.shape();
  Shape index(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    visit(index, offset);
    for (size_t d = shape.size(); d-- > 0;) {
      offset += x.strides()[d];
      if (++index[d] < shape[d]) {
        break;
      }
      offset -= x.strides()[d] * shape[d];
      index[d] = 0;
    }
  }
}

// Where the elements of the inputs lie, to find those that would be changed together.
struct Place {
  uintptr_t address;
  size_t input;
};

void check_overlap(const std::vector<Tensor>& inputs) {
  std::vector<Place> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      continue;
    }
    const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(inputs[i].raw_data()));
    const int64_t size = dtype_size(inputs[i].dtype());
    for_each_element(inputs[i], [&](const Shape&, int64_t offset) {
      places.push_back({static_cast<uintptr_t>(begin + offset * size), i});
    });
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.address != b.address ? a.address < b.address : a.input < b.input;
  });
  for (size_t k = 1; k < places.size(); ++k) {
    const size_t a = places[k - 1].input, b = places[k].input;
    if (places[k - 1].address != places[k].address ||
        (!is_checked(inputs[a]) && !is_checked(inputs[b]))) {
      continue;
    }
    CHARGRAD_CHECK(a != b, "gradcheck: the elements of an input must not share memory, got input ",
                   a, " of shape ", inputs[a].shape(), " with strides ", inputs[a].strides());
    detail::fail_check("gradcheck: inputs must not share memory, got inputs ", a, " and ", b,
                       " of shapes ", inputs[a].shape(), " and ", inputs[b].shape());
  }
}

void check_inputs(const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  CHARGRAD_CHECK(options.eps > 0 && std::isfinite(options.eps),
                 "gradcheck: eps must be positive, got ", options.eps);
  CHARGRAD_CHECK(grad_enabled(), "gradcheck: gradients are switched off by a NoGradGuard");
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_checked(inputs[i])) {
      CHARGRAD_CHECK(inputs[i].dtype() == kFloat64,
                     "gradcheck: an input that requires grad must be float64, got input ", i,
                     " of dtype ", dtype_name(inputs[i].dtype()));
      any = any || inputs[i].numel() > 0;
    }
  }
  CHARGRAD_CHECK(any, "gradcheck: at least one input must require grad and have an element, got ",
                 inputs.size(), " without");
  check_overlap(inputs);
}

void check_result(const Tensor& y) {
  CHARGRAD_CHECK(y.defined(), "gradcheck: f must return a tensor, got an undefined one");
  CHARGRAD_CHECK(is_floating(y.dtype()), "gradcheck: f must return a floating tensor, got dtype ",
                 dtype_name(y.dtype()));
  CHARGRAD_CHECK(y.numel() > 0, "gradcheck: f must return at least one element, got shape ",
                 y.shape());
}

// Throws unless f, called again, gives the same bits.
void check_repeats(const Tensor& first, const Tensor& second) {
  CHARGRAD_CHECK(
      second.defined() && first.shape() == second.shape() && first.dtype() == second.dtype(),
      "gradcheck: f must give the same result in each call, recorded or not, got shape ",
      first.shape(), " and then ", second.defined() ? second.shape() : Shape{});
  const std::vector<double> a = first.to_vector<double>(), b = second.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CHARGRAD_CHECK(std::bit_cast<uint64_t>(a[i]) == std::bit_cast<uint64_t>(b[i]),
                   "gradcheck: f must give the same bits in each call, recorded or not, got ", a[i],
                   " and then ", b[i], " at element ", i, " of shape ", first.shape());
  }
}

// Sets an element for as long as it lives.
class Nudge {
 public:
  Nudge(double* element, double value) : element_(element), before_(*element) { *element = value; }
  ~Nudge() { *element_ = before_; }
  Nudge(const Nudge&) = delete;
  Nudge& operator=(const Nudge&) = delete;

 private:
  double* element_;
  double before_;
};

// f with one element of an input set to `value`.
std::vector<double> values_at(double value, const GradcheckFunction& f,
                              const std::vector<Tensor>& inputs, double* x, size_t size) {
  const Nudge nudge(x, value);
  std::vector<double> values = f(inputs).to_vector<double>();
  CHARGRAD_CHECK(values.size() == size, "gradcheck: f must keep the number of its results, got ",
                 values.size(), " elements after ", size);
  return values;
}

// The derivative of sum(f(inputs) * weights) by one element. The two results are subtracted before
// they are added up: elements that do not depend on x then add no rounding error at all.
double central_difference(const GradcheckFunction& f, const std::vector<Tensor>& inputs, double* x,
                          double eps, const std::vector<double>& weights) {
  const double high = *x + eps, low = *x - eps;
  const std::vector<double> above = values_at(high, f, inputs, x, weights.size());
  const std::vector<double> below = values_at(low, f, inputs, x, weights.size());
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i] * (above[i] - below[i]);
  }
  return sum / (high - low);
}

// Errors of one input, added to the result.
class Comparison {
 public:
  Comparison(const GradcheckOptions& options, GradcheckResult& result)
      : options_(options), result_(result) {}

  void add(size_t input, const Shape& index, double analytic, double numeric) {
    double error = std::abs(analytic - numeric);
    double allowance = options_.atol + options_.rtol * std::abs(numeric);
    if (!std::isfinite(error)) {
      error = std::numeric_limits<double>::infinity();
      allowance = options_.atol;
    }
    result_.passed = result_.passed && error <= allowance;
    const double excess = error > 0 ? error / allowance : 0;
    if (excess > worst_excess_) {
      worst_excess_ = excess;
      result_.worst = {input, index, analytic, numeric};
    }
    input_error_ = std::max(input_error_, error);
    scale_ = std::isfinite(error) ? std::max(scale_, std::abs(numeric)) : scale_;
  }

  void end_input() {
    result_.max_abs_error = std::max(result_.max_abs_error, input_error_);
    result_.max_rel_error = std::max(result_.max_rel_error, input_error_ / scale_);
    input_error_ = 0;
    scale_ = kSmallestScale;
  }

 private:
  const GradcheckOptions& options_;
  GradcheckResult& result_;
  double worst_excess_ = -1;
  double input_error_ = 0;
  double scale_ = kSmallestScale;
};

}  // namespace

std::string GradcheckResult::message() const {
  return fmt::format("input {} at {}: analytic {:.10g}, numeric {:.10g}", worst.input, worst.index,
                     worst.analytic, worst.numeric);
}

GradcheckResult gradcheck(const GradcheckFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  check_inputs(inputs, options);
  std::vector<Tensor> checked;
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_checked(inputs[i])) {
      checked.push_back(inputs[i]);
      places.push_back(i);
    }
  }

  std::vector<double> weights;
  Grads analytic(checked.size());
  {
    const Tensor y = f(inputs);
    check_result(y);
    {
      const NoGradGuard no_grad;
      check_repeats(y, f(inputs));
    }
    const Tensor w = from_vector(projection(y.numel()), y.shape(), y.dtype());
    weights = w.to_vector<double>();  // as y's dtype holds them
    if (y.requires_grad()) {
      // The graph is retained: it may reach beyond the inputs, and is not this function's to free.
      analytic = grad({y}, checked, {w}, /*retain_graph=*/true, /*allow_unused=*/true);
    }
  }

  const NoGradGuard no_grad;
  GradcheckResult result;
  result.passed = true;
  Comparison comparison(options, result);
  for (size_t k = 0; k < checked.size(); ++k) {
    const Tensor& x = checked[k];
    const std::vector<double> dx = analytic[k].defined()
                                       ? analytic[k].to_vector<double>()
                                       : std::vector<double>(static_cast<size_t>(x.numel()), 0.0);
    size_t i = 0;
    for_each_element(x, [&](const Shape& index, int64_t offset) {
      const double numeric =
          central_difference(f, inputs, x.data<double>() + offset, options.eps, weights);
      comparison.add(places[k], index, dx[i++], numeric);
    });
    comparison.end_input();
  }
  return result;
}

}  // namespace chargrad
