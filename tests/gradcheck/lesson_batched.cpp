// "Self-Attention: Queries, Keys, and Values": the worked example, failure modes, exercises.
#include <cmath>

#include "engine/ops.h"
#include "models/self_attention.h"
#include "tests/gradcheck/lesson.h"

namespace chargrad::tests {
namespace {

double max_difference(const Tensor& a, const Tensor& b) {
  return amax(abs(a - b)).item();
}

void self_attention(LessonSheet& sheet) {
  Generator generator(42);
  const Tensor x = randn({1, 4, 8}, kFloat32, generator);
  const SelfAttention attention(8, 4, 4, generator);
  const Tensor Q = matmul(x, attention.W_Q), K = matmul(x, attention.W_K),
               V = matmul(x, attention.W_V);
  const SelfAttention::Output y = attention.forward(x);
  sheet.note("seed 42, randn: X (1, 4, 8), d_k = d_v = 4");
  // clang-format off
  sheet.numbers("Q", {"-0.7142", "-10.7618", "4.7928", "1.6591",
                      "5.9094", "-2.2237", "2.2946", "-1.0836",
                      "-3.2318", "3.9874", "-3.4993", "4.7026",
                      "-3.5491", "3.5556", "-3.1290", "1.0415"}, Q);
  sheet.numbers("K", {"4.0115", "3.6513", "2.9872", "3.6108",
                      "-3.4479", "-0.5821", "1.8296", "2.9016",
                      "0.9276", "-0.0589", "6.4627", "1.9089",
                      "1.3121", "-0.1874", "0.3295", "1.9857"}, K);
  sheet.numbers("V", {"-8.2489", "-0.9326", "2.3788", "-0.8355",
                      "4.1438", "-1.3904", "2.1127", "-1.3241",
                      "-0.2973", "1.8336", "2.2672", "1.4077",
                      "-0.8263", "3.7984", "3.3404", "-0.7702"}, V);
  sheet.numbers("scores", {"-10.9254", "11.1552", "17.0567", "2.9766",
                           "9.2642", "-9.0133", "9.1868", "3.3872",
                           "4.0607", "8.0325", "-8.4355", "1.5988",
                           "-3.4206", "3.7321", "-10.8679", "-2.1428"}, attention.scores(x));
  sheet.numbers("weights", {"7.02e-13", "2.73e-03", "9.97e-01", "7.65e-07",
                            "5.19e-01", "5.98e-09", "4.80e-01", "1.45e-03",
                            "1.85e-02", "9.80e-01", "6.91e-08", "1.57e-03",
                            "7.80e-04", "9.96e-01", "4.55e-07", "2.80e-03"}, y.weights);
  sheet.numbers("output", {"-0.2852", "1.8248", "2.2668", "1.4002",
                           "-4.4217", "0.4019", "2.3266", "0.2412",
                           "3.9072", "-1.3738", "2.1196", "-1.3142",
                           "4.1202", "-1.3755", "2.1164", "-1.3222"}, y.output);
  // clang-format on
  sheet.numbers("sum of row ", {"1.0", "1.0", "1.0", "1.0"}, sum(y.weights, {-1}).select(0, 0));
  AttentionOptions options;
  options.scale = 0.5;
  const double difference =
      max_difference(scaled_dot_product_attention(Q, K, V, options), y.output);
  sheet.note(
      fmt::format("  scaled_dot_product_attention(scale = 0.5) differs by {:.1e}", difference));
  sheet.claim("that is below 1e-6", difference < 1e-6);
}

// T = 5, d_k = 3 and d_v = 2, so that no two sizes can be mistaken for each other.
void failure_modes(LessonSheet& sheet) {
  Generator generator(7);
  const Tensor x = randn({2, 5, 6}, kFloat32, generator);
  const SelfAttention attention(6, 3, 2, generator);
  const Tensor Q = matmul(x, attention.W_Q), K = matmul(x, attention.W_K),
               V = matmul(x, attention.W_V);
  const SelfAttention::Output y = attention.forward(x);
  const Tensor raw = matmul(Q, K.transpose(-2, -1));
  sheet.claim("right: equals scaled_dot_product_attention, to 1e-6",
              max_difference(scaled_dot_product_attention(Q, K, V), y.output) < 1e-6);
  const double right = mean(amax(y.weights, {-1})).item();
  const double wrong = mean(amax(softmax(raw), {-1})).item();
  sheet.note(fmt::format("  largest weight of a row: {:.3f} with the scale, {:.3f} without", right,
                         wrong));
  sheet.claim("missing scale: one weight dominates, the output differs",
              wrong > right && max_difference(matmul(softmax(raw), V), y.output) > 0.01);

  const Tensor large = tensor({1000, 1001, 999, 1002});
  const Tensor naive = exp(large) / sum(exp(large));
  sheet.note("  naive softmax of (1000, 1001, 999, 1002): " + to_string(naive));
  sheet.claim("unstable softmax: no finite weight", std::isnan(naive.item({0})));
  sheet.note("the stable one, worked out by hand:");
  sheet.numbers("stable softmax", {"0.0871", "0.2369", "0.0321", "0.6439"}, stable_softmax(large));
  sheet.numbers("the op softmax", {"0.0871", "0.2369", "0.0321", "0.6439"}, softmax(large));

  sheet.claim(
      "wrong transpose: keys asking queries gives another output",
      max_difference(matmul(softmax(attention.scores(x).transpose(-2, -1)), V), y.output) > 0.01);
  sheet.claim("scores have shape [2, 5, 5]", attention.scores(x).shape() == Shape{2, 5, 5});
  sheet.claim("queries in place of values: the last size is d_k, not d_v",
              matmul(y.weights, Q).size(-1) == 3 && y.output.shape() == Shape{2, 5, 2});
}

void exercises(LessonSheet& sheet) {
  Generator generator(1);
  const SelfAttention attention(6, 2, 2, generator);
  const Tensor x = randn({1, 3, 6}, kFloat32, generator);
  const SelfAttention::Output y = attention.forward(x);
  const Shape projected = {1, 3, 2}, square = {1, 3, 3};
  sheet.note("1. X (1, 3, 6) and matrices (6, 2)");
  sheet.claim("Q, K, V and output have shape [1, 3, 2]",
              matmul(x, attention.W_Q).shape() == projected &&
                  matmul(x, attention.W_K).shape() == projected &&
                  matmul(x, attention.W_V).shape() == projected && y.output.shape() == projected);
  sheet.claim("scores and weights have shape [1, 3, 3]",
              attention.scores(x).shape() == square && y.weights.shape() == square);

  sheet.note("2. unscaled scores up to 500: exp(500) is beyond float32");
  const Tensor s = tensor({500, -500, 0});
  sheet.claim("naive softmax gives nan", std::isnan((exp(s) / sum(exp(s))).item({0})));
  sheet.numbers("stable softmax", {"1", "0", "0"}, stable_softmax(s));
  sheet.claim("divided by sqrt(64), 62.5, even the naive one is finite",
              std::isfinite((exp(s / 8) / sum(exp(s / 8))).item({0})));

  sheet.note("3. row 0: how much position 0 looks at every position");
  const Tensor row = y.weights.select(1, 0);
  sheet.number("sum of row 0", "1.0", sum(row).item());
  sheet.claim("row 0 times the values is output 0",
              max_difference(matmul(row, matmul(x, attention.W_V).select(0, 0)),
                             y.output.select(1, 0)) < 1e-6);
}

}  // namespace

std::vector<Lesson> batched_lessons() {
  return {{"self_attention", "SelfAttention: batches, and the weights returned", self_attention},
          {"failure_modes", "Four ways to get it wrong", failure_modes},
          {"exercises", "The exercises' answers", exercises}};
}

}  // namespace chargrad::tests
