// Choosing a target's functions by the element types that they read and write.
#pragma once

#include "engine/dtype.h"

namespace chargrad::kernels {

// Functions<X, Y> holds pointers to one target's functions that read X and write Y. Highway exports
// plain functions only, so each target exports one that returns this table, of which
// `Functions<X, Y> f = table;` takes the part.
template <template <class, class> class Functions>
struct MixedTable : Functions<float, float>,
                    Functions<float, bfloat16>,
                    Functions<bfloat16, bfloat16> {};

// The same where one type is read and written.
template <template <class> class Functions>
struct FloatTable : Functions<float>, Functions<bfloat16> {};

}  // namespace chargrad::kernels
