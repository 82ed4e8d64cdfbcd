// Tells which of its compilations Highway picks, by the pattern of a *_simd.cpp file.
#include "tests/engine/kernels/dispatch_target.h"

#include "engine/kernels/cpu.h"
#include "engine/kernels/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/engine/kernels/dispatch_target.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace chargrad::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

int64_t float_lanes() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chargrad::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chargrad::kernels {

HWY_EXPORT(target_name);
HWY_EXPORT(float_lanes);

std::string dispatched_target() {
  active_tier();
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

int64_t dispatched_float_lanes() {
  active_tier();
  return HWY_DYNAMIC_DISPATCH(float_lanes)();
}

int64_t compiled_targets() {
  return HWY_TARGETS;
}

}  // namespace chargrad::kernels
#endif
