// Any bytes as a safetensors file: refused, or read and written back to an equal file.
#include <cstring>
#include <filesystem>

#include "tests/fuzz/fuzz_file.h"
#include "train/safetensors.h"

namespace {

using chargrad::train::read_safetensors;

bool same_bytes(const chargrad::Tensor& a, const chargrad::Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw_data(), b.raw_data(),
                     static_cast<size_t>(a.numel() * dtype_size(a.dtype()))) == 0;
}

}  // namespace

// libFuzzer asks for this name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const chargrad::fuzz::MemoryFile input, output;
  input.set(chargrad::fuzz::bytes_of(data, size));
  chargrad::fuzz::expect_value_or_error([] {
    const auto read = read_safetensors(input.path());
    chargrad::train::write_safetensors(output.path(), read.tensors, read.metadata);
    const auto again = read_safetensors(output.path());
    chargrad::fuzz::require(again.metadata == read.metadata &&
                            again.tensors.size() == read.tensors.size());
    for (const auto& [name, x] : read.tensors) {
      bool found = false;
      for (const auto& [other, y] : again.tensors) {
        found = found || (name == other && same_bytes(x, y));
      }
      chargrad::fuzz::require(found);
    }
  });
  return 0;
}
