// The one table of op cases: gradcheck, the tests and the bench all run over it. Adding a row
// gives an op all three.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace chargrad::tests {

// What the inputs' elements are.
enum class Draw {
  kNormal,    // standard normal
  kPositive,  // uniform in [0.5, 2)
  kSpread,    // distinct, at least 0.05 apart and from 0: for ops with kinks and ties
};

// How the inputs lie in memory.
enum class Layout {
  kContiguous,
  kStrided,  // the last two dims stored in the other order; of one dim, every second element
};

struct OpCase {
  std::string name;           // op/variant, as in "softmax/last_dim"
  std::vector<Shape> shapes;  // of the floating inputs, all of which get gradients
  std::function<Tensor(const std::vector<Tensor>&)> f;
  Draw draw = Draw::kNormal;
  Layout layout = Layout::kContiguous;
};

// All rows, family by family.
const std::vector<OpCase>& op_cases();

// A row's inputs, requiring grad; the same numbers in each call, rounded to dtype.
std::vector<Tensor> make_inputs(const OpCase& op_case, DType dtype = kFloat64);

// The families, each in the file of its name beside this one. An op's rows cover: a usual shape,
// size 1, an odd size, a strided input, and every option.
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> activation_cases();
std::vector<OpCase> reduce_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> index_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> softmax_cases();
std::vector<OpCase> norm_and_loss_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> dropout_cases();

}  // namespace chargrad::tests
