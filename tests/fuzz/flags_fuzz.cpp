// Words, one a line, as the command line of train and of sample: refused, or settings that read
// back from their JSON.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/fuzz/fuzz_file.h"
#include "train/resolve.h"

namespace {

using namespace chargrad::train;

// Nothing that would be opened: the name may be that of anything.
bool names_a_file(const std::string& word) {
  return word.find("onfig") != std::string::npos;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

// libFuzzer asks for this name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<const char*> argv{"train"};
  const std::vector<std::string> words = lines_of(chargrad::fuzz::bytes_of(data, size));
  for (const std::string& word : words) {
    if (names_a_file(word)) {
      return 0;
    }
    argv.push_back(word.c_str());
  }
  const int argc = static_cast<int>(argv.size());
  chargrad::fuzz::expect_value_or_error([&] {
    TrainSettings named;
    const Arguments arguments =
        parse_arguments(train_program(), setting_list(named), argc, argv.data());
    const TrainSettings settings = resolve_train(arguments, [](const std::string&) {
      TrainSettings run;
      run.data = "a.txt";
      return run;
    });
    train_settings_from_json(to_json(settings), "settings.json");
  });
  chargrad::fuzz::expect_value_or_error([&] {
    SampleSettings named;
    resolve_sample(parse_arguments(sample_program(), setting_list(named), argc, argv.data()));
  });
  return 0;
}
