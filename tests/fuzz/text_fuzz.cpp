// Any bytes as a text to train on: refused, or loaded so that it reads back, in blocks of any size.
#include "data/dataset.h"
#include "tests/fuzz/fuzz_file.h"

// libFuzzer asks for this name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using chargrad::data::Dataset;
  using chargrad::data::Split;
  static const chargrad::fuzz::MemoryFile file;
  if (size == 0) {
    return 0;
  }
  std::string_view text = chargrad::fuzz::bytes_of(data + 1, size - 1);
  file.set(text);
  chargrad::fuzz::expect_value_or_error([&] {
    std::string bytes, back;
    const Dataset dataset = Dataset::load(
        file.path(), [&bytes](std::string_view block) { bytes += block; }, 1 + data[0] % 64);
    chargrad::fuzz::require(bytes == text);
    for (const Split split : {Split::kTrain, Split::kVal}) {
      std::vector<int64_t> ids(static_cast<size_t>(dataset.size(split)));
      dataset.window(split, 0, dataset.size(split), ids.data());
      back += dataset.vocab().decode(ids);
    }
    if (text.substr(0, 3) == "\xEF\xBB\xBF") {
      text.remove_prefix(3);
    }
    chargrad::fuzz::require(back == text);
    dataset.check_fits(1 + data[0]);
  });
  return 0;
}
