// How kernels cut their work for parallel_for: by sizes alone, so that results do not depend on
// the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/threads.h"

namespace chargrad::kernels {

// Elements of one chunk: 64 KiB of float, several microseconds of work, against about one to hand
// a chunk to a thread.
inline constexpr int64_t kChunkElements = 16384;

// Rows of one chunk where a row has `cols` elements; at least 1.
inline int64_t chunk_rows(int64_t cols) {
  return std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, cols));
}

// Calls f(begin, end) for the pieces of [0, n) of `chunk` each (the last may be shorter), on all
// threads.
template <class F>
void parallel_chunks(int64_t n, int64_t chunk, const F& f) {
  parallel_for((n + chunk - 1) / chunk,
               [&](int64_t i) { f(i * chunk, std::min(n, (i + 1) * chunk)); });
}

}  // namespace chargrad::kernels
