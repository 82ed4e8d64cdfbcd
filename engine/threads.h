// One small fixed pool of threads. Knows nothing of tensors; kernels may include it.
#pragma once

#include <cstdint>

namespace chargrad {

// Threads that parallel_for uses, the caller included. Starts at the number of processors that
// this process may run on.
int num_threads();

// Sets that number; 0 restores the start value. The pool is rebuilt by the next parallel_for.
// Throws for a negative count or one above 1024.
// Requires: no parallel_for is running.
void set_num_threads(int count);

namespace detail {
void run_chunks(int64_t chunks, void (*call)(void*, int64_t), void* context);
}

// Calls f(i) once for each i in [0, chunks), in any order, on the pool and the calling thread;
// returns when all have finished. The first exception is rethrown here after the others ended.
// What a chunk is must not depend on the number of threads: then neither does any result.
// Called from inside a chunk it runs serially.
template <class F>
void parallel_for(int64_t chunks, F&& f) {
  detail::run_chunks(
      chunks, [](void* context, int64_t i) { (*static_cast<decltype(&f)>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace chargrad
