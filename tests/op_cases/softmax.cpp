#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

using AlongDim = Tensor (*)(const Tensor&, int64_t);

void add_along_dim(std::vector<OpCase>& rows, const std::string& op, AlongDim f) {
  const auto call = [f](int64_t dim) {
    return [f, dim](const std::vector<Tensor>& in) { return f(in[0], dim); };
  };
  rows.push_back({op + "/last_dim", {{4, 7}}, call(-1)});
  rows.push_back({op + "/first_dim", {{4, 7}}, call(0)});
  rows.push_back({op + "/middle_dim", {{2, 3, 5}}, call(-2)});
  rows.push_back({op + "/one_row", {{37}}, call(0)});
  rows.push_back({op + "/size_1", {{3, 1}}, call(1)});
  rows.push_back({op + "/scalar", {{}}, call(-1)});
  rows.push_back({op + "/strided", {{2, 3, 5}}, call(-1), Draw::kNormal, Layout::kStrided});
  rows.push_back({op + "/strided_first", {{4, 7}}, call(0), Draw::kNormal, Layout::kStrided});
}

}  // namespace

std::vector<OpCase> softmax_cases() {
  std::vector<OpCase> rows;
  add_along_dim(rows, "softmax", softmax);
  add_along_dim(rows, "log_softmax", log_softmax);
  return rows;
}

}  // namespace chargrad::tests
