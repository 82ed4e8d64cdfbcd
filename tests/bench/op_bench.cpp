// Every row of the table of op cases, which shows what an op costs beside its arithmetic, and the
// ops around the products at the sizes of both models.
#include <benchmark/benchmark.h>

#include "engine/ops.h"
#include "tests/bench/families.h"
#include "tests/bench/recipes.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::bench {
namespace {

using tests::OpCase;

// Any function of tensors that take gradients; inputs are made when the benchmark runs.
struct Function {
  std::string name;
  std::function<std::vector<Tensor>()> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> f;
};

void forward(benchmark::State& state, const Function& function) {
  const std::vector<Tensor> in = function.inputs();
  const NoGradGuard no_grad;
  for (auto _ : state) {
    benchmark::DoNotOptimize(function.f(in).impl());
  }
}

// Backward alone: the graph is kept.
void backward(benchmark::State& state, const Function& function) {
  const std::vector<Tensor> in = function.inputs();
  const Tensor y = function.f(in);
  if (!y.requires_grad()) {
    state.SkipWithError("has no gradient");
    return;
  }
  const Tensor dy = ones_like(y);
  for (auto _ : state) {
    benchmark::DoNotOptimize(grad({y}, in, {dy}, /*retain_graph=*/true, /*allow_unused=*/true));
  }
}

void add(const Function& function, benchmark::TimeUnit unit) {
  for (const bool is_forward : {true, false}) {
    const std::string name = function.name + (is_forward ? "/forward" : "/backward");
    benchmark::RegisterBenchmark(name.c_str(),
                                 [function, is_forward](benchmark::State& state) {
                                   is_forward ? forward(state, function)
                                              : backward(state, function);
                                 })
        ->UseRealTime()
        ->MinTime(0.02)
        ->Unit(unit);
  }
}

// Standard normal inputs of these shapes.
std::function<std::vector<Tensor>()> normal(const std::vector<Shape>& shapes) {
  return [shapes] {
    std::vector<Tensor> result;
    result.reserve(shapes.size());
    for (const Shape& shape : shapes) {
      result.push_back(randn(shape).set_requires_grad());
    }
    return result;
  };
}

// The same in bfloat16.
std::function<std::vector<Tensor>()> normal_bfloat16(const std::vector<Shape>& shapes) {
  return [shapes] {
    std::vector<Tensor> result;
    result.reserve(shapes.size());
    for (const Shape& shape : shapes) {
      result.push_back(randn(shape).to(kBFloat16).set_requires_grad());
    }
    return result;
  };
}

using In = const std::vector<Tensor>&;

Tensor packed_attention(const Tensor& qkv, int64_t n_head, double dropout_p) {
  AttentionOptions options;
  options.is_causal = true;
  options.dropout_p = dropout_p;
  return scaled_dot_product_attention_packed(qkv, n_head, options);
}

void add_model_sizes(const Recipe& r) {
  const int64_t B = r.batch_size, T = r.config.block_size, C = r.config.n_embd;
  const int64_t H = r.config.n_head, V = r.config.vocab_size, N = r.tokens();
  const std::string at = "/" + r.name;
  const Tensor ids = randint(0, V, {B, T});
  const std::vector<Function> functions = {
      {"attention" + at, normal({{B, H, T, C / H}, {B, H, T, C / H}, {B, H, T, C / H}}),
       [](In in) {
         AttentionOptions options;
         options.is_causal = true;
         return scaled_dot_product_attention(in[0], in[1], in[2], options);
       }},
      {"attention_dropout" + at, normal({{B, H, T, C / H}, {B, H, T, C / H}, {B, H, T, C / H}}),
       [](In in) {
         AttentionOptions options;
         options.is_causal = true;
         options.dropout_p = 0.2;
         return scaled_dot_product_attention(in[0], in[1], in[2], options);
       }},
      {"layer_norm" + at, normal({{N, C}, {C}}), [](In in) { return layer_norm(in[0], in[1]); }},
      {"gelu" + at, normal({{N, 4 * C}}), [](In in) { return gelu(in[0]); }},
      {"add" + at, normal({{N, C}, {N, C}}), [](In in) { return in[0] + in[1]; }},
      {"dropout" + at, normal({{N, C}}), [](In in) { return dropout(in[0], 0.2); }},
      {"embedding" + at, normal({{V, C}}), [ids](In in) { return embedding(ids, in[0]); }},
      {"cross_entropy" + at, normal({{B, T, V}}),
       [ids](In in) { return cross_entropy(in[0], ids); }},
      // From c_attn's result to c_proj's input.
      {"attention_packed" + at, normal({{B, T, 3 * C}}),
       [H](In in) { return packed_attention(in[0], H, 0); }},
      {"attention_packed_dropout" + at, normal({{B, T, 3 * C}}),
       [H](In in) { return packed_attention(in[0], H, 0.2); }},
      {"attention_packed_bfloat16" + at, normal_bfloat16({{B, T, 3 * C}}),
       [H](In in) { return packed_attention(in[0], H, 0); }},
      {"attention_packed_bfloat16_dropout" + at, normal_bfloat16({{B, T, 3 * C}}),
       [H](In in) { return packed_attention(in[0], H, 0.2); }},
  };
  for (const Function& function : functions) {
    add(function, benchmark::kMicrosecond);
  }
}

}  // namespace

void add_ops() {
  for (const Recipe& r : recipes()) {
    add_model_sizes(r);
  }
  for (const OpCase& row : tests::op_cases()) {
    const OpCase* const op_case = &row;
    add({"op/" + row.name, [op_case] { return tests::make_inputs(*op_case, kFloat32); }, row.f},
        benchmark::kNanosecond);
  }
}

}  // namespace chargrad::bench
