// Every matrix product of both models in float32 and bfloat16: forward, input gradient, weight
// gradient (float32 of bfloat16 operands); GF/s, and the share of the peak measured right before.
#include <benchmark/benchmark.h>

#include "engine/kernels/gemm.h"
#include "engine/ops.h"
#include "tests/bench/families.h"
#include "tests/bench/machine.h"
#include "tests/bench/recipes.h"

namespace chargrad::bench {
namespace {

// A layer of `out` x `in` weights over `rows` tokens.
struct Layer {
  int64_t rows, in, out;
};

enum class Pass { kForward, kInputGradient, kWeightGradient };

template <class S>
void product(Pass pass, const Layer& l, const Tensor& x, const Tensor& w, const Tensor& y,
             const Tensor& dw) {
  using View = kernels::MatrixView<S>;
  const View xs{x.data<S>(), l.in, 1}, ws{w.data<S>(), l.in, 1}, ys{y.data<S>(), l.out, 1};
  switch (pass) {
    case Pass::kForward:  // y = x W^T
      return kernels::gemm(l.rows, l.out, l.in, xs, transposed(ws), y.data<S>(), l.out);
    case Pass::kInputGradient:  // dx = dy W
      return kernels::gemm(l.rows, l.in, l.out, ys, ws, x.data<S>(), l.in);
    case Pass::kWeightGradient:  // dW = dy^T x
      return kernels::gemm(l.out, l.in, l.rows, transposed(ys), xs, dw.data<float>(), l.in);
  }
}

template <class S>
void run(benchmark::State& state, Pass pass, Layer l) {
  const DType dtype = dtype_of<S>;
  const Tensor x = randn({l.rows, l.in}).to(dtype), w = randn({l.out, l.in}).to(dtype);
  const Tensor y = randn({l.rows, l.out}).to(dtype), dw = zeros({l.out, l.in});
  product<S>(pass, l, x, w, y, dw);
  const double peak = (dtype == kBFloat16 ? bfloat16_peak_gflops() : peak_gflops()) * 1e9;
  for (auto _ : state) {
    product<S>(pass, l, x, w, y, dw);
  }
  const double flops = 2.0 * static_cast<double>(l.rows * l.in * l.out * state.iterations());
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(flops / peak, benchmark::Counter::kIsRate);
}

}  // namespace

void add_gemm() {
  const std::pair<const char*, Pass> passes[] = {{"forward", Pass::kForward},
                                                 {"input_gradient", Pass::kInputGradient},
                                                 {"weight_gradient", Pass::kWeightGradient}};
  for (const Recipe& r : recipes()) {
    const int64_t C = r.config.n_embd, V = r.config.vocab_size, M = r.tokens();
    const std::pair<const char*, Layer> layers[] = {{"c_attn", {M, C, 3 * C}},
                                                    {"c_proj", {M, C, C}},
                                                    {"c_fc", {M, C, 4 * C}},
                                                    {"mlp_c_proj", {M, 4 * C, C}},
                                                    {"lm_head", {M, C, V}}};
    for (const auto& [layer_name, layer] : layers) {
      for (const auto& [pass_name, pass] : passes) {
        const Pass p = pass;
        const Layer l = layer;
        const std::string what = std::string("/") + layer_name + "/" + pass_name;
        const auto settings = [](auto* entry) {
          entry->MinTime(0.1)->Unit(benchmark::kMicrosecond);
        };
        add_for_threads(
            "gemm/" + r.name + "/float32" + what,
            [p, l](benchmark::State& state) { run<float>(state, p, l); }, settings);
        add_for_threads(
            "gemm/" + r.name + "/bfloat16" + what,
            [p, l](benchmark::State& state) { run<bfloat16>(state, p, l); }, settings);
      }
    }
  }
}

}  // namespace chargrad::bench
