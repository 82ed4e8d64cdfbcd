// Softmax, losses, norms and activations against PyTorch's numbers (golden/activations.json).
#include "tests/golden/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/ops.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad::tests {
namespace {

using Inputs = std::vector<Tensor>;
using Op = std::function<Tensor(const Inputs&)>;

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> table = {
      {"exp", [](const Inputs& in) { return exp(in[0]); }},
      {"log", [](const Inputs& in) { return log(in[0]); }},
      {"sqrt", [](const Inputs& in) { return sqrt(in[0]); }},
      {"tanh", [](const Inputs& in) { return tanh(in[0]); }},
      {"sigmoid", [](const Inputs& in) { return sigmoid(in[0]); }},
      {"relu", [](const Inputs& in) { return relu(in[0]); }},
      {"gelu", [](const Inputs& in) { return gelu(in[0]); }},
      {"gelu/tanh", [](const Inputs& in) { return gelu(in[0], GeluApproximate::kTanh); }},
      {"softmax/0", [](const Inputs& in) { return softmax(in[0], 0); }},
      {"softmax/1", [](const Inputs& in) { return softmax(in[0], 1); }},
      {"softmax/-1", [](const Inputs& in) { return softmax(in[0], -1); }},
      {"log_softmax/0", [](const Inputs& in) { return log_softmax(in[0], 0); }},
      {"log_softmax/-1", [](const Inputs& in) { return log_softmax(in[0], -1); }},
      {"cross_entropy",
       [](const Inputs& in) {
         return cross_entropy(in[0], from_vector<int64_t>({3, 0, -100, 4}, {4}));
       }},
      {"layer_norm", [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); }},
      {"layer_norm/no_bias", [](const Inputs& in) { return layer_norm(in[0], in[1]); }},
      {"layer_norm/eps", [](const Inputs& in) { return layer_norm(in[0], {}, {}, 0.5); }},
  };
  return table;
}

Tensor tensor_of(const nlohmann::json& entry, DType dtype) {
  return from_vector(values_of(entry), entry.at("shape").get<Shape>(), dtype);
}

// Values and gradients reach about 20. float64 agrees to a few roundings of that; float32 rounds
// the inputs too, and layer_norm with a short row multiplies that by 1/std and the weight.
void compare(DType dtype, double tolerance) {
  const nlohmann::json cases = golden("activations.json");
  EXPECT_EQ(cases.size(), ops().size());
  for (const auto& [name, op] : ops()) {
    SCOPED_TRACE(name);
    const nlohmann::json& expected = cases.at(name);
    Inputs in;
    for (const auto& entry : expected.at("inputs")) {
      in.push_back(tensor_of(entry, dtype));
      in.back().set_requires_grad();
    }
    const Tensor y = op(in);
    EXPECT_EQ(y.shape(), expected.at("y").at("shape").get<Shape>());
    EXPECT_THAT(values(y), near(values_of(expected.at("y")), tolerance));
    y.backward(tensor_of(expected.at("dy"), dtype));
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_THAT(values(in[i].grad()), near(values_of(expected.at("grads").at(i)), tolerance))
          << "gradient " << i;
    }
  }
}

TEST(Golden, ActivationsInFloat64) {
  compare(kFloat64, 1e-13);
}

TEST(Golden, ActivationsInFloat32) {
  compare(kFloat32, 2e-5);
}

}  // namespace
}  // namespace chargrad::tests
