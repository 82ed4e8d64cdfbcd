#include "tests/bench/gemm_shapes.h"

#include <tuple>
#include <utility>

#include "engine/check.h"
#include "engine/kernels/gemm.h"

namespace chargrad::bench {
namespace {

template <class S>
void product(Gemm& g) {
  const GemmShape& l = g.shape();
  using View = kernels::MatrixView<S>;
  const View x{g.x.data<S>(), l.in, 1}, w{g.w.data<S>(), l.in, 1}, y{g.y.data<S>(), l.out, 1};
  switch (l.pass) {
    case Pass::kForward:
      return kernels::gemm(l.rows, l.out, l.in, x, transposed(w), g.y.data<S>(), l.out);
    case Pass::kInputGradient:
      return kernels::gemm(l.rows, l.in, l.out, y, w, g.x.data<S>(), l.in);
    case Pass::kWeightGradient:
      return kernels::gemm(l.out, l.in, l.rows, transposed(y), x, g.dw.data<float>(), l.in);
  }
}

}  // namespace

std::vector<GemmShape> gemm_shapes(const Recipe& recipe) {
  const int64_t C = recipe.config.n_embd, V = recipe.config.vocab_size;
  const std::tuple<const char*, int64_t, int64_t> layers[] = {{"c_attn", C, 3 * C},
                                                              {"c_proj", C, C},
                                                              {"c_fc", C, 4 * C},
                                                              {"mlp_c_proj", 4 * C, C},
                                                              {"lm_head", C, V}};
  const std::pair<const char*, Pass> passes[] = {{"forward", Pass::kForward},
                                                 {"input_gradient", Pass::kInputGradient},
                                                 {"weight_gradient", Pass::kWeightGradient}};
  std::vector<GemmShape> shapes;
  for (const auto& [layer, in, out] : layers) {
    for (const auto& [pass_name, pass] : passes) {
      shapes.push_back({std::string(layer) + "/" + pass_name, pass, recipe.tokens(), in, out});
    }
  }
  return shapes;
}

GemmShape gemm_shape(const Recipe& recipe, const std::string& name) {
  for (const GemmShape& shape : gemm_shapes(recipe)) {
    if (shape.name == name) {
      return shape;
    }
  }
  detail::fail_check("bench: no product is called ", name);
}

Gemm::Gemm(GemmShape shape, DType dtype)
    : x(randn({shape.rows, shape.in}).to(dtype)),
      w(randn({shape.out, shape.in}).to(dtype)),
      y(randn({shape.rows, shape.out}).to(dtype)),
      dw(zeros({shape.out, shape.in})),
      shape_(std::move(shape)) {}

void Gemm::run() {
  x.dtype() == kBFloat16 ? product<bfloat16>(*this) : product<float>(*this);
}

}  // namespace chargrad::bench
