// Working memory of kernels: from the heap, kept by the thread, never given back before it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/dtype.h"

namespace chargrad::kernels {

// A grow-only buffer on a cache line's border. Meant to be thread_local.
class Scratch {
 public:
  // Room for `count` elements; what the last call handed out is no longer valid.
  float* floats(int64_t count);
  bfloat16* bfloat16s(int64_t count) {
    return reinterpret_cast<bfloat16*>(floats((count + 1) / 2));
  }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

}  // namespace chargrad::kernels
