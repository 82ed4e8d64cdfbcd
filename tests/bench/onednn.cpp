#include "tests/bench/onednn.h"

#ifdef CHARGRAD_ONEDNN
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "engine/check.h"
#include "engine/kernels/cpu.h"

extern "C" void omp_set_num_threads(int count);  // oneDNN's threads are OpenMP's.

namespace chargrad::bench {
namespace {

class OneDnnGemm {
 public:
  // Throws dnnl::error where there is no such product.
  explicit OneDnnGemm(Gemm& gemm);
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  // A (rows, columns) matrix in the tensor's memory, which holds its transpose if `transposed`.
  dnnl::memory matrix(Tensor& tensor, bool transposed = false);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::memory a_, b_, c_;
  dnnl::matmul product_;
};

dnnl::memory OneDnnGemm::matrix(Tensor& tensor, bool transposed) {
  using Memory = dnnl::memory;
  const bool is_bfloat16 = tensor.dtype() == kBFloat16;
  const Memory::dim rows = tensor.size(0), columns = tensor.size(1);
  const Memory::desc desc(transposed ? Memory::dims{columns, rows} : Memory::dims{rows, columns},
                          is_bfloat16 ? Memory::data_type::bf16 : Memory::data_type::f32,
                          transposed ? Memory::dims{1, columns} : Memory::dims{columns, 1});
  return {desc, engine_,
          is_bfloat16 ? static_cast<void*>(tensor.data<bfloat16>()) : tensor.data<float>()};
}

OneDnnGemm::OneDnnGemm(Gemm& gemm) {
  switch (gemm.shape().pass) {
    case Pass::kForward:
      a_ = matrix(gemm.x);
      b_ = matrix(gemm.w, /*transposed=*/true);
      c_ = matrix(gemm.y);
      break;
    case Pass::kInputGradient:
      a_ = matrix(gemm.y);
      b_ = matrix(gemm.w);
      c_ = matrix(gemm.x);
      break;
    case Pass::kWeightGradient:
      a_ = matrix(gemm.y, /*transposed=*/true);
      b_ = matrix(gemm.x);
      c_ = matrix(gemm.dw);
      break;
  }
  const dnnl::matmul::desc desc(a_.get_desc(), b_.get_desc(), c_.get_desc());
  product_ = dnnl::matmul(dnnl::matmul::primitive_desc(desc, engine_));
}

dnnl::cpu_isa isa_of(kernels::Tier tier) {
  switch (tier) {
    case kernels::Tier::kRef:
      return dnnl::cpu_isa::sse41;
    case kernels::Tier::kAvx2:
      return dnnl::cpu_isa::avx2;
    case kernels::Tier::kAvx512:
      return dnnl::cpu_isa::avx512_core;
    case kernels::Tier::kAvx512Bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case kernels::Tier::kAmx:
      break;
  }
  return dnnl::cpu_isa::avx512_core_amx;
}

// Once, before oneDNN makes anything: it refuses later.
void cap_instructions() {
  static const dnnl::status status = dnnl::set_max_cpu_isa(isa_of(kernels::active_tier()));
  CHARGRAD_CHECK(status == dnnl::status::success, "bench: oneDNN cannot be held to tier ",
                 kernels::tier_name(kernels::active_tier()));
}

}  // namespace

bool has_onednn() {
  return true;
}

std::function<void()> onednn_product(Gemm& gemm) {
  cap_instructions();
  try {
    const auto product = std::make_shared<OneDnnGemm>(gemm);
    return [product] { product->run(); };
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) {
      throw;
    }
    return {};
  }
}

void set_onednn_threads(int count) {
  omp_set_num_threads(count);
}

}  // namespace chargrad::bench

#else

namespace chargrad::bench {

bool has_onednn() {
  return false;
}

std::function<void()> onednn_product(Gemm& /*gemm*/) {
  return {};
}

void set_onednn_threads(int /*count*/) {}

}  // namespace chargrad::bench

#endif
