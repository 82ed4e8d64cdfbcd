#include "engine/threads.h"

namespace chargrad {

int num_threads() {
  return 1;
}
void set_num_threads(int /*count*/) {}

namespace detail {
void run_chunks(int64_t chunks, void (*call)(void*, int64_t), void* context) {
  for (int64_t i = 0; i < chunks; ++i) {
    call(context, i);
  }
}
}  // namespace detail

}  // namespace chargrad
