// "Self-Attention by Hand": the plain average, one causal head, and several.
#include "engine/dot.h"
#include "engine/ops.h"
#include "models/causal_average.h"
#include "models/head.h"
#include "models/multi_head_attention.h"
#include "tests/gradcheck/lesson.h"

namespace chargrad::tests {
namespace {

double max_difference(const Tensor& a, const Tensor& b) {
  return amax(abs(a - b)).item();
}

Tensor lesson_input(Generator& generator) {
  return randn({4, 8, 384}, kFloat32, generator);
}

void average(LessonSheet& sheet) {
  Generator generator(1337);
  const Tensor x = lesson_input(generator);
  sheet.note("x (4, 8, 384), seed 1337: a loop over positions, and one lower-triangular product");
  const double difference = max_difference(causal_average_loop(x), causal_average_matmul(x));
  sheet.note(fmt::format("  largest difference {:.1e}", difference));
  sheet.claim("loop and product agree", difference < 1e-5);
  const Tensor w = causal_average_weights(8);
  sheet.numbers("first row of weights ", {"1", "0", "0", "0", "0", "0", "0", "0"}, w.select(0, 0));
  sheet.numbers("last row of weights ",
                {"0.1250", "0.1250", "0.1250", "0.1250", "0.1250", "0.1250", "0.1250", "0.1250"},
                w.select(0, 7));
}

void one_hot_row(LessonSheet& sheet) {
  const Tensor z = tensor({8, 0}, kFloat64).set_requires_grad();
  const Tensor p = softmax(z);
  sheet.numbers("softmax(8, 0) ", {"0.9997", "0.0003"}, p);
  p.select(0, 0).backward();
  sheet.note("its derivative, worked out by hand as p (1 - p):");
  sheet.numbers("d p_0 / d s ", {"3.352e-4", "-3.352e-4"}, z.grad());
  const Tensor soft = tensor({1, 0}, kFloat64).set_requires_grad();
  softmax(soft).select(0, 0).backward();
  sheet.numbers("the same at (8, 0) / sqrt(64) ", {"0.19661", "-0.19661"}, soft.grad());
}

void head(LessonSheet& sheet) {
  one_hot_row(sheet);
  Generator generator(1337);
  const Tensor x = lesson_input(generator);
  const Head head(384, 16, 8, generator);
  const Head::Output y = head.forward_with_weights(x);
  sheet.note("one head 384 -> 16 on x (4, 8, 384), seed 1337");
  sheet.numbers("first row of weights ", {"1", "0", "0", "0", "0", "0", "0", "0"},
                y.weights.select(0, 0).select(0, 0));
  sheet.note("the rows behind it, by PyTorch 2.13 from the same seed:");
  sheet.numbers("second row ", {"0.7260", "0.2740"},
                narrow(y.weights.select(0, 0).select(0, 1), 0, 0, 2));
  sheet.numbers("last row ",
                {"0.1099", "0.1287", "0.0941", "0.0947", "0.1521", "0.1575", "0.1532", "0.1099"},
                y.weights.select(0, 0).select(0, 7));
  sheet.claim("the weights are lower-triangular", sum(abs(triu(y.weights, 1))).item() == 0);
  sheet.claim("every row sums to 1", max_difference(sum(y.weights, {-1}), ones({4, 8})) < 1e-6);
  AttentionOptions causal;
  causal.is_causal = true;
  const Tensor fused =
      scaled_dot_product_attention(head.query(x), head.key(x), head.value(x), causal);
  sheet.claim("scaled_dot_product_attention(is_causal) gives the same, to 1e-6",
              max_difference(fused, y.output) < 1e-6);
  sheet.claim("tril is a buffer: three parameters, none of them tril",
              head.named_parameters().size() == 3 && head.named_buffers().size() == 1);
  sheet.note("the graph of its output, for Graphviz (dot -Tsvg):");
  sheet.note(to_dot(y.output, head.named_parameters()));
}

void multi_head(LessonSheet& sheet) {
  Generator generator(1337);
  const Tensor x = randn({2, 5, 12}, kFloat32, generator);
  const HeadList list(12, 3, 4, 8, /*dropout=*/0.25, generator);
  MultiHeadAttention split(12, 3, 4, /*dropout=*/0.25, generator);
  split.copy_heads(list);
  sheet.note("three heads of 4 on x (2, 5, 12): as a list, as one split, as the fused op");
  const DropoutKey key{1337, 0};
  const Tensor y = split.forward(x, key);
  sheet.claim("list and split drop the same weights and agree, to 1e-6",
              max_difference(y, list.forward(x, key)) < 1e-6);
  sheet.claim("the fused op drops the same weights and agrees, to 1e-6",
              max_difference(y, split.forward_fused(x, key)) < 1e-6);
  split.eval();
  sheet.claim("dropout is off in evaluation",
              max_difference(split.forward(x, key), y) > 1e-3 &&
                  max_difference(split.forward(x), split.forward_fused(x)) < 1e-6);
}

}  // namespace

std::vector<Lesson> causal_lessons() {
  return {{"average", "The plain causal average, by loop and by matrix product", average},
          {"head", "Head: one causal head, end to end", head},
          {"multi_head", "Several heads: a list, a split, and dropout on the weights", multi_head}};
}

}  // namespace chargrad::tests
