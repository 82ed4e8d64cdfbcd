#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {

std::vector<OpCase> attention_cases() {
  return {};
}

}  // namespace chargrad::tests
