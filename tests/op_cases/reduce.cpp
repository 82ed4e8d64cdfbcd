#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

using Inputs = std::vector<Tensor>;
using Dims = std::vector<int64_t>;
using Reduce = std::function<Tensor(const Tensor&, const Dims&, bool)>;

void add_over_dims(std::vector<OpCase>& rows, const std::string& op, const Reduce& f, Draw draw) {
  const auto row = [&](const std::string& variant, const Shape& x, const Dims& dims, bool keepdim,
                       Layout layout = Layout::kContiguous) {
    rows.push_back({op + "/" + variant,
                    {x},
                    [f, dims, keepdim](const Inputs& in) { return f(in[0], dims, keepdim); },
                    draw,
                    layout});
  };
  row("all", {3, 4}, {}, false);
  row("all_keepdim", {3, 4}, {}, true);
  row("last", {3, 7}, {-1}, false);
  row("first", {3, 11}, {0}, false);
  row("outer_two", {2, 3, 4}, {0, 2}, false);
  row("middle_keepdim", {2, 5, 3}, {1}, true);
  row("size_1", {4, 1}, {0}, true);
  row("strided", {2, 3, 4}, {-1, 0}, false, Layout::kStrided);
  row("strided_vector", {9}, {0}, false, Layout::kStrided);
}

using WithIndices = ValuesAndIndices (*)(const Tensor&, int64_t, bool);

void add_along_dim(std::vector<OpCase>& rows, const std::string& op, WithIndices f) {
  const auto row = [&](const std::string& variant, const Shape& x, int64_t dim, bool keepdim,
                       Layout layout = Layout::kContiguous) {
    rows.push_back({op + "/" + variant,
                    {x},
                    [f, dim, keepdim](const Inputs& in) { return f(in[0], dim, keepdim).values; },
                    Draw::kSpread,
                    layout});
  };
  row("last", {3, 7}, -1, false);
  row("first", {3, 5}, 0, false);
  row("middle_keepdim", {2, 5, 3}, 1, true);
  row("size_1", {1}, 0, false);
  row("scalar", {}, -1, false);
  row("strided", {2, 3, 4}, 1, false, Layout::kStrided);
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  std::vector<OpCase> rows;
  add_over_dims(rows, "sum", sum, Draw::kNormal);
  add_over_dims(rows, "mean", mean, Draw::kNormal);
  add_over_dims(
      rows, "var",
      [](const Tensor& x, const Dims& dims, bool keepdim) {
        return var(x, dims, /*correction=*/1, keepdim);
      },
      Draw::kNormal);
  rows.push_back(
      {"var/correction_0", {{3, 4}}, [](const Inputs& in) { return var(in[0], {1}, 0); }});
  rows.push_back(
      {"var/correction_2", {{3, 4}}, [](const Inputs& in) { return var(in[0], {1}, 2); }});
  add_over_dims(rows, "amax", amax, Draw::kSpread);
  add_over_dims(rows, "amin", amin, Draw::kSpread);
  add_along_dim(rows, "max", max);
  add_along_dim(rows, "min", min);
  return rows;
}

}  // namespace chargrad::tests
