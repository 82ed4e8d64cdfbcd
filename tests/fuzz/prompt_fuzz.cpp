// A text that gives the vocabulary, a zero byte, a prompt: refused, or encoded and read back.
#include "data/vocab.h"
#include "tests/fuzz/fuzz_file.h"

// libFuzzer asks for this name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all = chargrad::fuzz::bytes_of(data, size);
  const size_t end = all.find('\0');
  const std::string_view text = all.substr(0, end);
  const std::string_view prompt =
      end == std::string_view::npos ? std::string_view() : all.substr(end + 1);
  chargrad::fuzz::expect_value_or_error([&] {
    const auto vocab = chargrad::data::Vocab::from_text(text);
    chargrad::fuzz::require(vocab.decode(vocab.encode(text)) == text);
    chargrad::fuzz::require(vocab.start_id() >= 0 && vocab.start_id() < vocab.size());
    chargrad::fuzz::require(vocab.decode(vocab.encode(prompt)) == prompt);
  });
  return 0;
}
