#include "engine/kernels/scratch.h"

#include <new>

namespace chargrad::kernels {

namespace {

constexpr std::align_val_t kAlignment{64};  // A cache line, and the widest vector.

}  // namespace

void Scratch::Free::operator()(float* p) const {
  ::operator delete(p, kAlignment);
}

float* Scratch::floats(int64_t count) {
  if (count > capacity_) {
    data_.reset();
    capacity_ = 0;
    data_.reset(static_cast<float*>(
        ::operator new(static_cast<size_t>(count) * sizeof(float), kAlignment)));
    capacity_ = count;
  }
  return data_.get();
}

}  // namespace chargrad::kernels
