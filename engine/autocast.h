// Mixed precision, as torch.autocast: while a guard is alive, products round their operands to
// its dtype and return it, sums inside stay float32; layer_norm and gelu return it too. float64
// stays float64.
#pragma once

#include <optional>

#include "engine/dtype.h"

namespace chargrad {

// The dtype that products work in now, if any.
std::optional<DType> autocast_dtype();

// What the ops that autocast lists return for an input of `dtype`: its dtype in place of float32.
DType autocast_from(DType dtype);

// Switches autocast on for this thread while alive; kFloat32 and kFloat64 switch it off.
class AutocastGuard {
 public:
  explicit AutocastGuard(DType dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  std::optional<DType> before_;
};

}  // namespace chargrad
