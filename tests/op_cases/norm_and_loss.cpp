#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

// logits of `shape` against targets 1, 4, 7, ... modulo the number of classes; with `ignore` each
// second target is left out.
OpCase cross_entropy_case(const std::string& variant, const Shape& shape, bool ignore = false,
                          Layout layout = Layout::kContiguous) {
  const Shape target_shape(shape.begin(), shape.end() - 1);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < numel_of(target_shape); ++i) {
    ids.push_back(ignore && i % 2 == 1 ? -1 : (1 + 3 * i) % shape.back());
  }
  const Tensor target = from_vector(ids, target_shape);
  return {"cross_entropy/" + variant,
          {shape},
          [target](const std::vector<Tensor>& in) { return cross_entropy(in[0], target, -1); },
          Draw::kNormal,
          layout};
}

void add_cross_entropy(std::vector<OpCase>& rows) {
  rows.push_back(cross_entropy_case("matrix", {4, 7}));
  rows.push_back(cross_entropy_case("batch", {2, 3, 5}));
  rows.push_back(cross_entropy_case("one_row", {9}));
  rows.push_back(cross_entropy_case("one_class", {3, 1}));
  rows.push_back(cross_entropy_case("odd", {3, 37}));
  rows.push_back(cross_entropy_case("ignore_index", {5, 7}, /*ignore=*/true));
  rows.push_back(cross_entropy_case("strided", {2, 3, 5}, /*ignore=*/false, Layout::kStrided));
}

void add_layer_norm(std::vector<OpCase>& rows) {
  const auto affine = [](const std::vector<Tensor>& in) { return layer_norm(in[0], in[1], in[2]); };
  rows.push_back({"layer_norm/affine", {{4, 8}, {8}, {8}}, affine});
  rows.push_back({"layer_norm/batch", {{2, 3, 5}, {5}, {5}}, affine});
  rows.push_back({"layer_norm/one_row", {{37}, {37}, {37}}, affine});
  rows.push_back({"layer_norm/width_1", {{3, 1}, {1}, {1}}, affine});
  rows.push_back(
      {"layer_norm/strided", {{2, 3, 5}, {5}, {5}}, affine, Draw::kNormal, Layout::kStrided});
  rows.push_back({"layer_norm/no_bias", {{4, 8}, {8}}, [](const std::vector<Tensor>& in) {
                    return layer_norm(in[0], in[1]);
                  }});
  rows.push_back({"layer_norm/no_weight", {{4, 8}, {8}}, [](const std::vector<Tensor>& in) {
                    return layer_norm(in[0], {}, in[1]);
                  }});
  rows.push_back({"layer_norm/plain", {{4, 8}}, [](const std::vector<Tensor>& in) {
                    return layer_norm(in[0]);
                  }});
  rows.push_back({"layer_norm/eps", {{4, 8}, {8}, {8}}, [](const std::vector<Tensor>& in) {
                    return layer_norm(in[0], in[1], in[2], 0.1);
                  }});
}

}  // namespace

std::vector<OpCase> norm_and_loss_cases() {
  std::vector<OpCase> rows;
  add_cross_entropy(rows);
  add_layer_norm(rows);
  return rows;
}

}  // namespace chargrad::tests
