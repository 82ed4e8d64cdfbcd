#include <fmt/format.h>

#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

using Inputs = std::vector<Tensor>;
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using WithNumber = Tensor (*)(const Tensor&, double);
using Unary = Tensor (*)(const Tensor&);

void add_binary(std::vector<OpCase>& rows, const std::string& op, Binary f, Draw draw) {
  // Draw::kSpread keeps the elements of one input apart by steps of 0.0505; half a step keeps the
  // two inputs apart.
  const double shift = draw == Draw::kSpread ? 0.02525 : 0;
  const auto call = [f, shift](const Inputs& in) { return f(in[0], in[1] + shift); };
  rows.push_back({op + "/same_shape", {{3, 4}, {3, 4}}, call, draw});
  rows.push_back({op + "/odd", {{37}, {37}}, call, draw});
  rows.push_back({op + "/size_1", {{1}, {1}}, call, draw});
  rows.push_back({op + "/scalars", {{}, {}}, call, draw});
  rows.push_back({op + "/row", {{2, 3, 5}, {5}}, call, draw});
  rows.push_back({op + "/column", {{3, 1}, {3, 5}}, call, draw});
  rows.push_back({op + "/outer", {{4, 1}, {1, 4}}, call, draw});
  rows.push_back({op + "/strided", {{2, 3, 5}, {3, 5}}, call, draw, Layout::kStrided});
}

void add_with_number(std::vector<OpCase>& rows, const std::string& op, WithNumber f, double b) {
  rows.push_back({op + "/number", {{3, 5}}, [f, b](const Inputs& in) { return f(in[0], b); }});
}

void add_unary(std::vector<OpCase>& rows, const std::string& op, const std::string& option,
               const std::function<Tensor(const Tensor&)>& f, Draw draw) {
  const auto call = [f](const Inputs& in) { return f(in[0]); };
  rows.push_back({op + "/" + option + "usual", {{3, 4}}, call, draw});
  rows.push_back({op + "/" + option + "size_1", {{1}}, call, draw});
  rows.push_back({op + "/" + option + "odd", {{3, 1, 7}}, call, draw});
  rows.push_back({op + "/" + option + "strided", {{5, 3}}, call, draw, Layout::kStrided});
}

void add_choices(std::vector<OpCase>& rows) {
  const auto where_row = [&rows](const char* name, Shape a, Shape b, Layout layout,
                                 auto condition) {
    rows.push_back({name,
                    {a, b},
                    [condition](const Inputs& in) { return where(condition(), in[0], in[1]); },
                    Draw::kNormal,
                    layout});
  };
  const auto row = [] { return tensor({1, 0, 1}, kBool); };
  const auto column = [] { return unsqueeze(tensor({1, 0}, kBool), 1); };
  where_row("where/same_shape", {2, 3}, {2, 3}, Layout::kContiguous, row);
  where_row("where/broadcast", {3}, {2, 1}, Layout::kContiguous, column);
  where_row("where/scalar", {}, {2, 3}, Layout::kContiguous, row);
  where_row("where/strided", {4, 2, 3}, {2, 3}, Layout::kStrided, column);
  where_row("where/size_1", {1}, {1}, Layout::kContiguous, [] { return ones({1}, kBool); });

  const auto fill_row = [&rows](const char* name, Shape x, Layout layout, auto mask) {
    rows.push_back({name,
                    {x},
                    [mask](const Inputs& in) { return masked_fill(in[0], mask(), -2.5); },
                    Draw::kNormal,
                    layout});
  };
  fill_row("masked_fill/row", {2, 3}, Layout::kContiguous, row);
  fill_row("masked_fill/column", {2, 5}, Layout::kContiguous, column);
  fill_row("masked_fill/strided", {4, 2, 3}, Layout::kStrided, row);
  fill_row("masked_fill/size_1", {1}, Layout::kContiguous, [] { return zeros({1}, kBool); });
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> rows;
  add_binary(rows, "add", add, Draw::kNormal);
  add_binary(rows, "sub", sub, Draw::kNormal);
  add_binary(rows, "mul", mul, Draw::kNormal);
  add_binary(rows, "div", div, Draw::kPositive);
  add_binary(rows, "maximum", maximum, Draw::kSpread);
  add_binary(rows, "minimum", minimum, Draw::kSpread);
  add_with_number(rows, "add", add, 1.5);
  add_with_number(rows, "sub", sub, 1.5);
  add_with_number(rows, "mul", mul, -0.75);
  add_with_number(rows, "div", div, -0.75);
  rows.push_back({"mul/itself", {{5}}, [](const Inputs& in) { return in[0] * in[0] * in[0]; }});

  add_unary(rows, "neg", "", neg, Draw::kNormal);
  add_unary(rows, "abs", "", abs, Draw::kSpread);
  for (const double exponent : {2.0, 3.0, -1.0, 0.5, 2.5}) {
    add_unary(
        rows, "pow", fmt::format("exponent_{}_", exponent),
        [exponent](const Tensor& x) { return pow(x, exponent); }, Draw::kPositive);
  }
  // The spread values are multiples of 0.0505; the bounds are not.
  add_unary(
      rows, "clamp", "", [](const Tensor& x) { return clamp(x, -0.17, 0.22); }, Draw::kSpread);
  add_unary(
      rows, "clamp", "low_", [](const Tensor& x) { return clamp(x, -0.17, {}); }, Draw::kSpread);
  add_unary(
      rows, "clamp", "high_", [](const Tensor& x) { return clamp(x, {}, 0.22); }, Draw::kSpread);
  add_choices(rows);
  return rows;
}

}  // namespace chargrad::tests
