// Memory is recycled: a training step takes no new page from the system once a few have run.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <string>
#include <tuple>

#include "engine/ops.h"
#include "engine/threads.h"
#include "models/gpt.h"
#include "tests/sanitized.h"
#include "train/optim/adamw.h"

namespace chargrad::train {
namespace {

// Minor page faults of all threads of this process so far.
int64_t page_faults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(PageFault, OfANewPageCounts) {
  const int64_t before = page_faults();
  void* const page =
      mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, /*offset=*/0);
  ASSERT_NE(page, MAP_FAILED);
  *static_cast<volatile char*>(page) = 1;
  munmap(page, 1);
  EXPECT_GT(page_faults(), before);
}

// The steps of a GPT whose largest tensors have 128 kB for each text of the batch in float32.
class Steps {
 public:
  Steps(DType dtype, int64_t batch) : dtype_(dtype), batch_(batch) {}
  void run(int count) {
    for (int i = 0; i < count; ++i) {
      const Tensor ids = randint(0, kVocabulary, {batch_, 64});
      Tensor loss;
      {
        const AutocastGuard autocast(dtype_);
        loss = model_.loss(ids, ids);
      }
      loss.backward();
      optimizer_.step(optim::clip_factor(optim::grad_norm(model_.parameters()), 1.0));
      model_.zero_grad();
    }
  }

 private:
  static constexpr int64_t kVocabulary = 65;

  DType dtype_;
  int64_t batch_;
  GPT model_{GPTConfig{/*block_size=*/64, kVocabulary, /*n_layer=*/2, /*n_head=*/4,
                       /*n_embd=*/128, /*dropout=*/0.2}};
  optim::AdamW optimizer_{model_.named_parameters(), optim::AdamWOptions()};
};

class PageFaults : public testing::TestWithParam<std::tuple<DType, int, int64_t>> {
 protected:
  ~PageFaults() override { set_num_threads(0); }
};

// How many steps warm up depends on which thread happens to take which chunk: each has scratch
// memory of its own, which grows with the largest of its chunks. So the steps come in several
// windows, of which one must be without faults; were memory not recycled, each would have some.
TEST_P(PageFaults, AStepAfterTheWarmUpHasNone) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer keeps freed memory from being used again";
  }
  constexpr int kWarmUp = 3, kWindow = 5, kMostWindows = 8;
#ifdef M_MMAP_THRESHOLD
  // Else it grows, and the system's malloc keeps what ours should.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
  const auto [dtype, threads, batch] = GetParam();
  set_num_threads(threads);
  Steps steps(dtype, batch);
  steps.run(kWarmUp);
  std::string counts;
  for (int window = 0; window < kMostWindows; ++window) {
    const int64_t start = page_faults();
    steps.run(kWindow);
    const int64_t faults = page_faults() - start;
    if (faults == 0) {
      return;
    }
    counts += " " + std::to_string(faults);
  }
  FAIL() << "page faults in each window of " << kWindow << " steps:" << counts;
}

// Of a batch of 48 the largest are blocks that are cut and joined.
INSTANTIATE_TEST_SUITE_P(DtypesThreadsAndBatches, PageFaults,
                         testing::Combine(testing::Values(kFloat32, kBFloat16),
                                          testing::Values(1, 2), testing::Values(12, 48)),
                         [](const auto& param) {
                           return std::string(dtype_name(std::get<0>(param.param))) + "_" +
                                  std::to_string(std::get<1>(param.param)) + "_" +
                                  std::to_string(std::get<2>(param.param));
                         });

}  // namespace
}  // namespace chargrad::train
