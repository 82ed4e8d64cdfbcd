#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

using Unary = Tensor (*)(const Tensor&);

// The rows that each function of one argument has.
void add_unary(std::vector<OpCase>& rows, const std::string& op, Unary f, Draw draw) {
  const auto call = [f](const std::vector<Tensor>& in) { return f(in[0]); };
  rows.push_back({op + "/matrix", {{3, 5}}, call, draw});
  rows.push_back({op + "/scalar", {{}}, call, draw});
  rows.push_back({op + "/size_1", {{1, 1}}, call, draw});
  rows.push_back({op + "/odd", {{37}}, call, draw});
  rows.push_back({op + "/strided", {{2, 3, 5}}, call, draw, Layout::kStrided});
}

Tensor gelu_exact(const Tensor& x) {
  return gelu(x);
}

Tensor gelu_tanh(const Tensor& x) {
  return gelu(x, GeluApproximate::kTanh);
}

// As of large arrays: x is kept instead of the slope.
template <Unary f>
Tensor large(const std::vector<Tensor>& in) {
  const RecomputeGuard always(0);
  return f(in[0]);
}

}  // namespace

std::vector<OpCase> activation_cases() {
  std::vector<OpCase> rows;
  add_unary(rows, "exp", exp, Draw::kNormal);
  add_unary(rows, "log", log, Draw::kPositive);
  add_unary(rows, "sqrt", sqrt, Draw::kPositive);
  add_unary(rows, "tanh", tanh, Draw::kNormal);
  add_unary(rows, "sigmoid", sigmoid, Draw::kNormal);
  add_unary(rows, "relu", relu, Draw::kSpread);
  add_unary(rows, "gelu", gelu_exact, Draw::kNormal);
  rows.push_back({"gelu/tanh", {{3, 5}}, [](auto& in) { return gelu_tanh(in[0]); }});
  rows.push_back({"gelu/tanh_odd", {{37}}, [](auto& in) { return gelu_tanh(in[0]); }});
  rows.push_back({"gelu/large", {{3, 5}}, large<gelu_exact>});
  rows.push_back({"gelu/large_tanh", {{3, 5}}, large<gelu_tanh>});
  return rows;
}

}  // namespace chargrad::tests
