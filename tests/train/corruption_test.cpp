// The files of a run with every byte changed and at every length: a clear error or a correct
// result, never a crash, and memory in bounds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "engine/ops.h"
#include "models/generate.h"
#include "tests/error_text.h"
#include "tests/sanitized.h"
#include "tests/temp_folder.h"
#include "train/json_file.h"
#include "train/run_settings.h"
#include "train/safetensors.h"
#include "train/trainer.h"

namespace chargrad::train {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::StartsWith;

// Thorough: every value of every byte. Else a few values of each, and under sanitizers of some.
bool is_thorough() {
  return std::getenv("CHARGRAD_THOROUGH") != nullptr;
}

int64_t peak_kilobytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TrainSettings tiny() {
  TrainSettings s;
  s.data = "text";
  s.n_layer = 1;
  s.n_head = 2;
  s.n_embd = 4;
  s.head_size = 4;
  s.block_size = 4;
  s.batch_size = 2;
  s.dropout = 0.2;
  s.max_iters = 1;
  s.eval_iters = 1;
  s.threads = 1;
  return s;
}

// A run of one step, one file of which gets other bytes.
class CorruptionTest : public testing::TestWithParam<const char*> {
 protected:
  CorruptionTest() : dataset(data::Dataset::load(dir.write("text", some_text()))) {
    RunFolder folder = RunFolder::start(dir.path("run"), false);
    RunSettings run;
    run.settings = tiny();
    run.data_path = dir.path("text");
    folder.set_settings(run_settings_text(run));
    folder.write_settings();
    Trainer trainer(tiny(), dataset, {});
    trainer.run(folder);
    checkpoint = fs::path(dir.path("run")) / fs::read_symlink(dir.path("run/last"));
  }

  // Whatever the files held. A sanitizer's own memory is many times that of the program.
  ~CorruptionTest() override {
    if (!kSanitized) {
      EXPECT_LT(peak_kilobytes(), 200 * 1024);
    }
  }

  static std::string some_text() {
    std::string text;
    for (int i = 0; i < 20; ++i) {
      text += "abc\"\\d\u00e9\n";
    }
    return text;
  }

  fs::path path_of(const std::string& name) const {
    return name == "settings.json" ? fs::path(dir.path("run")) / name : checkpoint / name;
  }

  // Reads what the run's files hold, and uses it. Throws what the readers throw.
  void use(const std::string& name) const {
    if (name == "settings.json") {
      read_run_settings(path_of(name));
    } else if (name.rfind("trainer", 0) == 0) {
      Generator generator;
      const TrainerState state = read_trainer(checkpoint, 100, *optimizer, generator);
      EXPECT_GE(state.next_iter, 0);
      EXPECT_FALSE(state.batch.empty());
    } else {
      LoadedModel loaded = read_model(checkpoint);
      loaded.model->eval();
      const Tensor ids = generate(*loaded.model, zeros({1, 1}, kInt64), 2, {0, 0, 1});
      loaded.vocab.decode(ids.to_vector<int64_t>());
    }
  }

  // use(), and whether it threw; fails unless the message is one clear line about the file.
  bool is_refused(const std::string& name) const {
    std::string message;
    try {
      use(name);
      return false;
    } catch (const std::runtime_error& e) {
      message = e.what();
    } catch (const std::invalid_argument& e) {
      message = std::string("invalid_argument: ") + e.what();
    }
    const bool is_clear =
        (message.rfind(dir.path("run"), 0) == 0 || message.rfind("cannot ", 0) == 0 ||
         message.find("non-finite logits") != std::string::npos) &&
        message.find('\n') == std::string::npos && message.size() < 700 &&
        message.find("exception") == std::string::npos;
    EXPECT_TRUE(is_clear) << message;
    return true;
  }

  TempFolder dir;
  data::Dataset dataset;
  fs::path checkpoint;
  std::unique_ptr<LanguageModel> model = [] {
    Generator generator;
    return make_model(model_config(tiny(), 8), generator);
  }();
  std::unique_ptr<optim::AdamW> optimizer =
      std::make_unique<optim::AdamW>(model->named_parameters(), optim::AdamWOptions());
};

// A file whose bytes are replaced in place: making it anew would wait for the disk.
class Rewritten {
 public:
  explicit Rewritten(const fs::path& path) : file_(path, O_RDWR, "open") {}
  void set(const std::string& bytes) const {
    ASSERT_EQ(::pwrite(file_.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(::ftruncate(file_.get(), static_cast<off_t>(bytes.size())), 0);
  }

 private:
  Descriptor file_;
};

// The bytes to put in the place of one.
std::vector<char> values_for(size_t position, char byte) {
  std::vector<char> values;
  if (is_thorough()) {
    for (int value = 0; value < 256; ++value) {
      values.push_back(static_cast<char>(value));
    }
    return values;
  }
  static const std::string kTelling = std::string("\0\xff \"{}[],:09-\\e", 15);
  values = {static_cast<char>(byte ^ 1), static_cast<char>(byte ^ 0x80)};
  for (size_t i = 0; i < 2 && !kSanitized; ++i) {
    values.push_back(kTelling[(2 * position + i) % kTelling.size()]);
  }
  return values;
}

// Up to where a file is header or JSON; what follows are numbers, of which any will do.
size_t structure_of(const std::string& name, const std::string& bytes) {
  if (name.find("safetensors") == std::string::npos) {
    return bytes.size();
  }
  return 8 + (static_cast<unsigned char>(bytes[0]) | static_cast<unsigned char>(bytes[1]) << 8);
}

TEST_P(CorruptionTest, AtEveryLength) {
  const std::string name = GetParam(), bytes = read_whole_file(path_of(name), 1 << 20);
  const Rewritten file(path_of(name));
  size_t refused = 0;
  const size_t stride = kSanitized ? 7 : 1;
  for (size_t length = 0; length < bytes.size(); length += stride) {
    file.set(bytes.substr(0, length));
    refused += is_refused(name) ? 1 : 0;
  }
  // All but the line break that ends a JSON file belongs to the file.
  EXPECT_GE(refused + 1, bytes.size() / stride);
  file.set(bytes + "x");
  EXPECT_TRUE(is_refused(name));
  file.set(bytes);
  EXPECT_FALSE(is_refused(name));
  RecordProperty("lengths", static_cast<int>(bytes.size() / stride));
}

TEST_P(CorruptionTest, WithEveryByteChanged) {
  const std::string name = GetParam(), bytes = read_whole_file(path_of(name), 1 << 20);
  const Rewritten file(path_of(name));
  const int64_t peak_before = peak_kilobytes();
  const size_t end = structure_of(name, bytes), hex = bytes.find("\"generator\"");
  int tried = 0, refused = 0;
  for (size_t i = 0; i < end; ++i) {
    // Of the generator's 10,000 hexadecimal digits one is like the other.
    const bool is_hex = hex != std::string::npos && i > hex + 100 && i + 100 < end;
    if ((is_hex && i % 50 != 0) || (kSanitized && i % 5 != 0)) {
      continue;
    }
    for (const char value : values_for(i, bytes[i])) {
      if (value != bytes[i]) {
        std::string changed = bytes;
        changed[i] = value;
        file.set(changed);
        ++tried;
        refused += is_refused(name) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(refused, tried / 4);
  if (!kSanitized) {
    EXPECT_LT(peak_kilobytes() - peak_before, 100 * 1024);
  }
  std::cout << name << ": " << tried << " changes, " << refused << " refused\n";
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, CorruptionTest,
                         testing::Values("model.safetensors", "config.json", "vocab.json",
                                         "trainer.safetensors", "trainer.json", "settings.json"),
                         test_name);

// --- Faults by name ---------------------------------------------------------------------------

class WrongFile : public CorruptionTest {
 protected:
  // What the reader says once `from` is replaced by `to` in the file, without the file's path.
  std::string error(const std::string& name, const std::string& from, const std::string& to) const {
    const std::string bytes = read_whole_file(path_of(name), 1 << 20);
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return error_with(name, bytes.substr(0, at) + to + bytes.substr(at + from.size()));
  }

  std::string error_with(const std::string& name, const std::string& bytes) const {
    const std::string before = read_whole_file(path_of(name), 1 << 20);
    const Rewritten file(path_of(name));
    file.set(bytes);
    std::string message = "no error";
    try {
      use(name);
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    file.set(before);
    return without_folder(message);
  }

  // The same for a file of one tensor of 4 GiB, all of which is there: a hole.
  std::string with_gigabytes(const std::string& name) const {
    std::string bytes =
        R"({"x":{"dtype":"F32","shape":[1073741824],"data_offsets":[0,4294967296]}})";
    bytes.insert(0, std::string{static_cast<char>(bytes.size())} + std::string(7, '\0'));
    const std::string before = read_whole_file(path_of(name), 1 << 20);
    fs::remove(path_of(name));
    write_file(path_of(name), bytes);
    fs::resize_file(path_of(name), bytes.size() + (uintmax_t{4} << 30));
    const std::string message = error_text<std::runtime_error>([&] { use(name); });
    fs::remove(path_of(name));
    write_file(path_of(name), before);
    return without_folder(message);
  }

  std::string without_folder(std::string message) const {
    const std::string folder = checkpoint.string() + "/";
    const size_t at = message.find(folder);
    return at == std::string::npos ? message : message.erase(at, folder.size());
  }
};

TEST_F(WrongFile, Config) {
  const auto config = [this](const std::string& from, const std::string& to) {
    return error("config.json", from, to);
  };
  EXPECT_EQ(config("{", "{\"from_later\": 1,"), "no error");
  EXPECT_EQ(config("\"version\": 1", "\"version\": 2"),
            "config.json: version 2 is not supported; this program reads version 1");
  EXPECT_EQ(config("\"version\"", "\"vers\""), "config.json: version is missing");
  EXPECT_EQ(config("\"n_embd\"", "\"width\""), "config.json: n_embd is missing");
  EXPECT_EQ(config("\"gpt\"", "\"gpt2\""),
            "config.json: model must be one of gpt, head, bigram, got \"gpt2\"");
  EXPECT_EQ(config("\"n_layer\": 1", "\"n_layer\": 99999999999"),
            "config.json: n_layer must be a whole number in [1, 16777216], got 99999999999");
  EXPECT_EQ(config("\"n_layer\": 1", "\"n_layer\": 16777216"),
            "model.safetensors: holds 252 numbers, the model of config.json has 3355443252");
  EXPECT_EQ(config("\"n_embd\": 4", "\"n_embd\": 16777216"),
            "model.safetensors: holds 252 numbers, the model of config.json has 3377699972186112");
  EXPECT_EQ(config("\"n_head\": 2", "\"n_head\": 3"),
            "config.json: n_head must divide n_embd, got 3 and 4");
  EXPECT_EQ(config("\"dropout\": 0.2", "\"dropout\": 1.5"),
            "config.json: dropout must be a number in [0, 1], got 1.5");
  EXPECT_EQ(config("\"vocab_size\": 8", "\"vocab_size\": 9"),
            "vocab.json: 8 symbols do not fit the vocab_size 9 of config.json");
}

TEST_F(WrongFile, Vocab) {
  const auto vocab = [this](const std::string& from, const std::string& to) {
    return error("vocab.json", from, to);
  };
  EXPECT_EQ(vocab("\"b\"", "\"a\""),
            "vocab.json: vocabulary: code points must ascend, got 97 at position 4 after 97");
  EXPECT_EQ(vocab("\"b\"", "\"bb\""),
            "vocab.json: a symbol must be a text of one character, got \"bb\"");
  EXPECT_EQ(vocab("\"b\"", "\"\""),
            "vocab.json: a symbol must be a text of one character, got \"\"");
  EXPECT_EQ(vocab("\"b\"", "98"), "vocab.json: a symbol must be a text of one character, got 98");
  EXPECT_EQ(vocab("\"b\",", ""),
            "vocab.json: 7 symbols do not fit the vocab_size 8 of config.json");
  EXPECT_EQ(vocab("\"symbols\"", "\"letters\""), "vocab.json: symbols is missing");
}

TEST_F(WrongFile, Model) {
  const auto with = [this](const std::string& from, const std::string& to) {
    return error("model.safetensors", from, to);
  };
  EXPECT_THAT(with("ln_f.weight", "ln_g.weight"), HasSubstr("ln_f.weight is missing"));
  EXPECT_THAT(with("ln_f.weight", "ln_\\n.weigh"), HasSubstr("ln_\\x0a.weigh is unexpected"));
  EXPECT_THAT(
      with("\"shape\":[8,4]", "\"shape\":[4,8]"),
      StartsWith("model.safetensors: transformer.wte.weight has shape [4, 8], expected [8, 4]"));
  EXPECT_THAT(error_with("model.safetensors", "\xff\xd8\xff\xe0 a picture of a cat"),
              StartsWith("model.safetensors: not a safetensors file: header length "));
  EXPECT_EQ(error_with("model.safetensors", ""),
            "model.safetensors: not a safetensors file: 0 bytes, the header length alone takes 8");
  // 2^40 elements that are not there.
  std::string bytes =
      R"({"x":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})";
  bytes.insert(0, std::string{static_cast<char>(bytes.size())} + std::string(7, '\0'));
  EXPECT_EQ(
      error_with("model.safetensors", bytes),
      "model.safetensors: the header describes 4398046511104 bytes of data, the file holds 0");
  EXPECT_EQ(with_gigabytes("model.safetensors"),
            "model.safetensors: holds 1073741824 numbers, the model of config.json has 252");
  std::string nan = read_whole_file(path_of("model.safetensors"), 1 << 20);
  nan.replace(nan.size() - 4, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(error_with("model.safetensors", nan), HasSubstr("non-finite logits"));
}

TEST_F(WrongFile, Trainer) {
  const auto hex_of_generator = [this] {
    return Members::read(path_of("trainer.json")).text("generator");
  };
  const auto trainer = [this](const std::string& from, const std::string& to) {
    return error("trainer.json", from, to);
  };
  EXPECT_EQ(trainer("\"version\": 1", "\"version\": 7"),
            "trainer.json: version 7 is not supported; this program reads version 1");
  EXPECT_EQ(trainer("\"next_iter\": 2", "\"next_iter\": -2"),
            "trainer.json: next_iter must be a whole number in [0, 4611686018427387904], got -2");
  EXPECT_EQ(trainer("\"eval_done\": false", "\"eval_done\": 0"),
            "trainer.json: eval_done must be true or false, got 0");
  EXPECT_EQ(trainer("\"batch\": [", "\"batch\": [100,"),
            "trainer.json: batch holds the offset 100, the text has 100 windows");
  EXPECT_EQ(trainer("\"batch\"", "\"batch\": [], \"was\""),
            "trainer.json: batch must not be empty");
  EXPECT_EQ(trainer("\"generator\": \"", "\"generator\": \"0"),
            "trainer.json: generator must be a text of hexadecimal digits, got " +
                shown("0" + hex_of_generator()));
  EXPECT_THAT(trainer("\"generator\": \"", "\"generator\": \"00"),
              StartsWith("trainer.json: generator: a state must have "));
  EXPECT_EQ(trainer("\"best_val_loss\"", "\"best_val_loss\": \"low\", \"was\""),
            "trainer.json: best_val_loss must be a number in [-1.7976931348623157e+308, "
            "1.7976931348623157e+308], got \"low\"");
  EXPECT_THAT(error("trainer.safetensors", "ln_f.weight", "ln_g.weight"), HasSubstr("ln_f.weight"));
  std::string nan = read_whole_file(path_of("trainer.safetensors"), 1 << 20);
  nan.replace(nan.size() - 4, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(error_with("trainer.safetensors", nan),
              testing::MatchesRegex("trainer.safetensors: [a-z0-9_.]+ holds a NaN"));
  EXPECT_EQ(with_gigabytes("trainer.safetensors"),
            "trainer.safetensors: holds 1073741824 numbers, the moments of this model are 504");
}

TEST_F(WrongFile, Settings) {
  const auto settings = [this](const std::string& from, const std::string& to) {
    std::string message = error("settings.json", from, to);
    return message.substr(message.rfind('/') + 1);
  };
  EXPECT_EQ(settings("\"version\": 1", "\"version\": 2"),
            "settings.json: version 2 is not supported; this program reads version 1");
  EXPECT_EQ(settings("\"n_layer\": 1", "\"n_layer\": 0"),
            "settings.json: n_layer=0 is not a whole number in [1, 1024]");
  EXPECT_EQ(settings("\"sha256\"", "\"md5\""), "settings.json: sha256 is missing");
  EXPECT_EQ(settings("\"bytes\": 0", "\"bytes\": -1"),
            "settings.json: bytes must be a whole number in [0, 2^63), got -1");
  EXPECT_EQ(settings("\"kernels\"", "\"tier\""), "no error");  // a run of an earlier version
}

}  // namespace
}  // namespace chargrad::train
