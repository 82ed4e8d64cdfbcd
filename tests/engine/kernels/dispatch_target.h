#pragma once

#include <cstdint>
#include <string>

namespace chargrad::kernels {

// Highway's name of the target that a dispatched call runs on, and its lanes of float.
std::string dispatched_target();
int64_t dispatched_float_lanes();

// HWY_TARGETS of a file that is compiled per target.
int64_t compiled_targets();

}  // namespace chargrad::kernels
