// matmul, linear and gelu_linear.
#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {

std::vector<OpCase> matmul_cases() {
  const auto product = [](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); };
  const auto layer = [](const std::vector<Tensor>& in) {
    return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
  };
  // As on large inputs: what layer_norm and gelu gave is made again for dW.
  const auto large = [](const std::vector<Tensor>& in) {
    const RecomputeGuard always(0);
    return linear(gelu(linear(layer_norm(in[0]), in[1])), in[2]);
  };
  const auto behind_gelu = [](const std::vector<Tensor>& in) {
    return gelu_linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
  };
  // As on a large x, a row at a time, and two at a time.
  const auto row_by_row = [](const std::vector<Tensor>& in) {
    const RecomputeGuard always(0);
    return gelu_linear(in[0], in[1], in[2]);
  };
  const auto by_rows = [](const std::vector<Tensor>& in) {
    const RecomputeGuard two_rows(in[0].numel() / in[0].size(-1) > 2 ? 32 : 0);
    return gelu_linear(in[0], in[1], Tensor(), GeluApproximate::kTanh);
  };
  return {
      {"matmul/matrices", {{4, 3}, {3, 5}}, product},
      {"matmul/size_1", {{1, 1}, {1, 1}}, product},
      {"matmul/odd", {{7, 9}, {9, 3}}, product},
      {"matmul/strided", {{4, 3}, {3, 5}}, product, Draw::kNormal, Layout::kStrided},
      {"matmul/vectors", {{5}, {5}}, product},
      {"matmul/vector_matrix", {{3}, {3, 4}}, product},
      {"matmul/matrix_vector", {{4, 3}, {3}}, product},
      {"matmul/vector_batch", {{3}, {2, 3, 4}}, product},
      {"matmul/batch_vector", {{2, 4, 3}, {3}}, product},
      {"matmul/batched", {{2, 3, 4}, {2, 4, 2}}, product},
      {"matmul/batch_by_matrix", {{2, 3, 4}, {4, 5}}, product},
      {"matmul/matrix_by_batch", {{3, 4}, {2, 4, 2}}, product},
      {"matmul/broadcast_batch", {{2, 1, 3, 2}, {3, 2, 2}}, product},
      {"matmul/broadcast_both", {{2, 1, 2, 3}, {1, 3, 3, 2}}, product},
      {"matmul/batched_strided", {{2, 3, 4}, {2, 4, 2}}, product, Draw::kNormal, Layout::kStrided},
      {"matmul/with_itself",
       {{3, 3}},
       [](const std::vector<Tensor>& in) { return matmul(in[0], in[0]); }},
      {"linear/matrix", {{4, 3}, {5, 3}}, layer},
      {"linear/bias", {{4, 3}, {5, 3}, {5}}, layer},
      {"linear/size_1", {{1, 1}, {1, 1}, {1}}, layer},
      {"linear/odd", {{7, 9}, {3, 9}, {3}}, layer},
      {"linear/vector", {{3}, {5, 3}, {5}}, layer},
      {"linear/batched", {{2, 3, 4}, {5, 4}, {5}}, layer},
      {"linear/strided", {{2, 3, 4}, {5, 4}, {5}}, layer, Draw::kNormal, Layout::kStrided},
      {"gelu_linear/matrix", {{4, 3}, {5, 3}}, behind_gelu},
      {"gelu_linear/size_1", {{1, 1}, {1, 1}, {1}}, behind_gelu},
      {"gelu_linear/bias", {{2, 3, 4}, {5, 4}, {5}}, behind_gelu},
      {"gelu_linear/row_by_row", {{2, 3, 4}, {5, 4}, {5}}, row_by_row},
      {"gelu_linear/by_rows_strided", {{5, 3}, {4, 3}}, by_rows, Draw::kNormal, Layout::kStrided},
      {"linear/large", {{2, 3, 4}, {5, 4}, {3, 5}}, large},
  };
}

}  // namespace chargrad::tests
