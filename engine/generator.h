// Provisional seam: the generator's own file replaces this one.
#pragma once

#include <array>
#include <cstdint>

namespace chargrad {

class Generator;
Generator& default_generator();

// Decides a dropout mask; see dropout in ops.h.
using DropoutKey = std::array<uint32_t, 2>;

}  // namespace chargrad
