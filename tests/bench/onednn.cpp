// bench --onednn: our products beside oneDNN's, of the same operands, in turn.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/check.h"
#include "engine/threads.h"
#include "tests/bench/families.h"
#include "tests/bench/gemm_shapes.h"
#include "tests/bench/machine.h"

#ifdef CHARGRAD_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>

extern "C" void omp_set_num_threads(int count);  // oneDNN's threads are OpenMP's.

namespace chargrad::bench {
namespace {

// oneDNN's primitive for a product of the tensors of `gemm`, plain matrices on both sides: it packs
// what it likes in each call, as ours does.
class OneDnnGemm {
 public:
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

using Clock = std::chrono::steady_clock;

// Long enough that the threads of the other side have gone to sleep.
void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
}

// Seconds of one call, after so many that Linux has spread woken threads over the processors.
double seconds_of(const std::function<void()>& f, int64_t calls) {
  rest();
  const auto start = Clock::now();
  do {
    f();
  } while (Clock::now() - start < std::chrono::milliseconds(20));
  const LoopTime time;
  for (int64_t i = 0; i < calls; ++i) {
    f();
  }
  return time.seconds() / static_cast<double>(calls);
}

// The same in a thread of its own, with so many of OpenMP's: oneDNN may set up and release the
// tiles of the thread that calls it, and ours keep theirs.
double seconds_apart(const std::function<void()>& f, int64_t calls, int threads) {
  const auto measure = [&] {
    omp_set_num_threads(threads);
    return seconds_of(f, calls);
  };
  return std::async(std::launch::async, measure).get();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(const std::string& name, Gemm& gemm, DType dtype, int threads) {
  constexpr double kSlice = 10e-3;  // seconds
  constexpr int kRounds = 7;
  rest();
  const double peak = peak_gflops(dtype);
  OneDnnGemm onednn(gemm);
  const std::function<void()> our_call = [&] { gemm.run(); }, their_call = [&] { onednn.run(); };
  const auto calls = static_cast<int64_t>(kSlice / seconds_of(our_call, 1)) + 1;
  std::vector<double> ours, theirs, ratios;
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(seconds_of(our_call, calls));
    theirs.push_back(seconds_apart(their_call, calls, threads));
    ratios.push_back(theirs.back() / ours.back());
  }
  const double gflop = gemm.shape().flops() * 1e-9;
  const double our_speed = gflop / median(ours), their_speed = gflop / median(theirs);
  std::cout << fmt::format("{:40} {:7.1f} {:5.2f} {:9.1f} {:5.2f} {:7.2f} ({:.2f} .. {:.2f})", name,
                           our_speed, our_speed / peak, their_speed, their_speed / peak,
                           median(ratios), *std::min_element(ratios.begin(), ratios.end()),
                           *std::max_element(ratios.begin(), ratios.end()))
            << std::endl;
}

}  // namespace

void compare_with_onednn(const std::string& what) {
  std::cout << fmt::format("{:40} {:>7} {:>5} {:>9} {:>5} {:>7}\n", "GF/s, share of the peak",
                           "ours", "peak", "oneDNN", "peak", "ratio");
  for (const int threads : std::set<int>{1, num_threads()}) {
    const Threads guard(threads);
    for (const Recipe& recipe : recipes()) {
      for (const DType dtype : {kFloat32, kBFloat16}) {
        for (const GemmShape& shape : gemm_shapes(recipe)) {
          const std::string name = fmt::format("{}/{}/{}/threads:{}", recipe.name,
                                               dtype_name(dtype), shape.name, threads);
          if (name.find(what) != std::string::npos) {
            Gemm gemm(shape, dtype);
            compare(name, gemm, dtype, threads);
          }
        }
      }
    }
  }
}

}  // namespace chargrad::bench

#else

namespace chargrad::bench {

void compare_with_onednn(const std::string& /*what*/) {
  detail::fail_check("bench: built without oneDNN; its Debian package is libdnnl-dev");
}

}  // namespace chargrad::bench

#endif
