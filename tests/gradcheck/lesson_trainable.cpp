// "Trainable self-attention: query, key, value, and a thermostat on the softmax": six tokens.
#include <cmath>

#include "engine/ops.h"
#include "models/self_attention_v1.h"
#include "models/self_attention_v2.h"
#include "models/simplified_self_attention.h"
#include "tests/gradcheck/lesson.h"

namespace chargrad::tests {
namespace {

constexpr int64_t kCat = 1, kSat = 2;

Tensor six_tokens() {
  return tensor({{0.43, 0.15, 0.89},    // The
                 {0.55, 0.87, 0.66},    // cat
                 {0.57, 0.85, 0.64},    // sat
                 {0.22, 0.58, 0.33},    // on
                 {0.77, 0.25, 0.10},    // the
                 {0.05, 0.80, 0.55}});  // mat
}

double max_difference(const Tensor& a, const Tensor& b) {
  return amax(abs(a - b)).item();
}

int64_t parameter_count(const nn::Module& module) {
  int64_t count = 0;
  for (const Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

SelfAttentionV1 lesson_v1() {
  Generator generator(123);
  return SelfAttentionV1(3, 2, generator);
}

void simplified(LessonSheet& sheet) {
  const Tensor x = six_tokens();
  const AttentionSteps s = simplified_self_attention(x);
  sheet.note("softmax(x x^T) x; the text prints no number of it: these are worked out in double");
  sheet.numbers("weights of sat ", {"0.1390", "0.2369", "0.2326", "0.1242", "0.1108", "0.1565"},
                s.weights.select(0, kSat));
  sheet.numbers("context of sat ", {"0.4431", "0.6496", "0.5671"}, s.output.select(0, kSat));
  SelfAttentionV1 v1(3, 3);
  v1.load_state_dict({{"W_query", eye(3)}, {"W_key", eye(3)}, {"W_value", eye(3)}});
  sheet.claim("divided by sqrt(3) it equals version 1 with identity matrices",
              max_difference(v1.forward(x),
                             simplified_self_attention(x, 1 / std::sqrt(3.0)).output) < 1e-6);
  const std::vector<double> row = s.scores.select(0, kSat).to_vector<double>();
  sheet.claim("cat and sat score highest for sat", row[1] > row[2] && row[2] > row[5]);
}

void v1_by_hand(LessonSheet& sheet, const SelfAttentionV1& v1, const AttentionSteps& s) {
  const Tensor x = six_tokens().select(0, kSat);
  sheet.numbers("column A of W_query ", {"0.2961", "0.2517", "0.0740"}, v1.W_query.select(1, 0));
  sheet.numbers("column B of W_query ", {"0.5166", "0.6886", "0.8665"}, v1.W_query.select(1, 1));
  sheet.number("x_sat . column A", "0.4300", sum(x * v1.W_query.select(1, 0)).item());
  sheet.number("x_sat . column B", "1.4343", sum(x * v1.W_query.select(1, 1)).item());
  sheet.number("0.4300 * 0.4433 + 1.4343 * 1.1419", "1.8284", 0.4300 * 0.4433 + 1.4343 * 1.1419);
  sheet.numbers("key of cat ", {"0.4433", "1.1419"}, s.keys.select(0, kCat));
}

void v1(LessonSheet& sheet) {
  const SelfAttentionV1 v1 = lesson_v1();
  const AttentionSteps s = v1.steps(six_tokens());
  sheet.note("seed 123, rand: three raw matrices (3, 2); the query token is sat");
  sheet.numbers("W_query", {"0.2961", "0.5166", "0.2517", "0.6886", "0.0740", "0.8665"},
                v1.W_query);
  sheet.numbers("query of sat ", {"0.4300", "1.4343"}, s.queries.select(0, kSat));
  sheet.numbers("key of sat ", {"0.4361", "1.1156"}, s.keys.select(0, kSat));
  sheet.numbers("value of sat ", {"0.3879", "0.9831"}, s.values.select(0, kSat));
  sheet.numbers("raw scores of sat ", {"1.2544", "1.8284", "1.7877", "1.0654", "0.5508", "1.5238"},
                s.scores.select(0, kSat));
  v1_by_hand(sheet, v1, s);
  const Tensor weights = s.weights.select(0, kSat);
  sheet.numbers("weights of sat ", {"0.1503", "0.2256", "0.2192", "0.1315", "0.0914", "0.1819"},
                weights);
  sheet.number("sum of the weights", "1.0000", sum(weights).item());
  sheet.numbers("in percent ", {"15", "23", "22"}, narrow(weights, 0, 0, 3) * 100);
  sheet.numbers("context of sat ", {"0.3058", "0.8203"}, s.output.select(0, kSat));
  sheet.note("all six tokens at once: The cat sat on the mat");
  sheet.numbers("context",
                {"0.2996", "0.8053", "0.3061", "0.8210", "0.3058", "0.8203", "0.2948", "0.7939",
                 "0.2927", "0.7891", "0.2990", "0.8040"},
                s.output);
  sheet.claim("twelve, twelve and thirty-six dot products",
              s.keys.numel() == 12 && s.values.numel() == 12 && s.scores.numel() == 36);

  bool all_trained = v1.named_parameters().size() == 3;
  for (const auto& [name, parameter] : v1.named_parameters()) {
    sheet.note("  " + name + " " + (parameter.requires_grad() ? "True" : "False"));
    all_trained = all_trained && parameter.requires_grad();
  }
  sheet.claim("every matrix requires grad", all_trained);
  const Tensor x = six_tokens().select(0, kSat);
  const Tensor off = matmul(x, v1.W_query.detach()), on = matmul(x, v1.W_query);
  sheet.note("  x_sat @ W_off   " + to_string(off));
  sheet.note("  x_sat @ W_on    " + to_string(on));
  sheet.claim("the same numbers either way", off.to_vector<float>() == on.to_vector<float>());
}

void v2(LessonSheet& sheet) {
  Generator generator(789);
  const SelfAttentionV2 v2(3, 2, /*qkv_bias=*/false, generator);
  const Tensor x = six_tokens();
  sheet.note("seed 789: three Linear layers, matrices stored (2, 3)");
  sheet.numbers("context of sat ", {"-0.0749", "0.0702"}, v2.forward(x).select(0, kSat));
  SelfAttentionV1 v1 = lesson_v1();
  v1.load_state_dict({{"W_query", v2.W_query.weight.detach().transpose(0, 1)},
                      {"W_key", v2.W_key.weight.detach().transpose(0, 1)},
                      {"W_value", v2.W_value.weight.detach().transpose(0, 1)}});
  sheet.claim("copied into version 1 with a transpose, the outputs are equal",
              max_difference(v1.forward(x), v2.forward(x)) < 1e-6);
  sheet.number("parameters", "18", static_cast<double>(parameter_count(v2)));
  sheet.claim("exactly 18 of them", parameter_count(v2) == 18);
  sheet.claim("one head of GPT-2 small has 3 * 768 * 768 = 1,769,472",
              parameter_count(SelfAttentionV2(768, 768)) == 1769472);
}

void thermostat(LessonSheet& sheet) {
  const Tensor s = tensor({0.1, -0.2, 0.3, -0.2, 0.5});
  sheet.note("softmax of the same five scores, as they are and eight times as large");
  sheet.numbers("softmax(s)", {"0.192", "0.143", "0.235", "0.143", "0.287"}, softmax(s));
  sheet.numbers("softmax(8 s)", {"0.033", "0.003", "0.162", "0.003", "0.800"}, softmax(s * 8));
}

}  // namespace

std::vector<Lesson> trainable_lessons() {
  return {{"simplified", "Simplified self-attention: no parameters", simplified},
          {"v1", "SelfAttentionV1: three raw matrices", v1},
          {"v2", "SelfAttentionV2: three Linear layers", v2},
          {"thermostat", "Why divide by sqrt(d_k): a thermostat on the softmax", thermostat}};
}

}  // namespace chargrad::tests
