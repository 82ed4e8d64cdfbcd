#include "engine/autocast.h"

namespace chargrad {
namespace {
thread_local std::optional<DType> current;
}

std::optional<DType> autocast_dtype() {
  return current;
}

DType autocast_from(DType dtype) {
  return dtype == kFloat32 ? current.value_or(dtype) : dtype;
}

AutocastGuard::AutocastGuard(DType dtype) : before_(current) {
  CHARGRAD_CHECK(is_floating(dtype), "autocast: a floating dtype is required, got ",
                 dtype_name(dtype));
  current = dtype == kBFloat16 ? std::optional(dtype) : std::nullopt;
}

AutocastGuard::~AutocastGuard() {
  current = before_;
}

}  // namespace chargrad
