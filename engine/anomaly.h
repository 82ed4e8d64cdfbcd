// What is behind DetectAnomaly.
#pragma once

#include "engine/tensor.h"

namespace chargrad {

bool anomaly_enabled();

// Whether a floating tensor holds a NaN or an infinity.
bool any_non_finite(const Tensor& x);

}  // namespace chargrad
