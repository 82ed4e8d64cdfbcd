#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {

namespace {

// A fixed key: each call draws the same mask.
OpCase dropout_case(const std::string& variant, const Shape& shape, double p,
                    Layout layout = Layout::kContiguous, bool training = true) {
  OpCase row;
  row.name = "dropout/" + variant;
  row.shapes = {shape};
  row.f = [p, training](const std::vector<Tensor>& in) {
    return dropout(in[0], p, training, DropoutKey{1337, 7});
  };
  row.layout = layout;
  return row;
}

}  // namespace

std::vector<OpCase> dropout_cases() {
  return {
      dropout_case("usual", {4, 7}, 0.2),
      dropout_case("size_one", {1}, 0.2),
      dropout_case("odd_batch", {3, 5, 7}, 0.5),
      dropout_case("strided", {6, 5}, 0.4, Layout::kStrided),
      dropout_case("p_zero", {4, 3}, 0),
      dropout_case("p_one", {4, 3}, 1),
      dropout_case("evaluation", {4, 3}, 0.5, Layout::kContiguous, /*training=*/false),
  };
}

}  // namespace chargrad::tests
