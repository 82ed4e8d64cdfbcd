#include "train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/temp_folder.h"

namespace chargrad::train {
namespace {

using ::testing::HasSubstr;

std::string iter_text(int64_t iter) {
  return R"({"kind":"iter","iter":)" + std::to_string(iter) + R"(,"loss":2.5})" + "\n";
}

std::string eval_text(int64_t iter) {
  return R"({"kind":"eval","iter":)" + std::to_string(iter) + R"(,"train_loss":2.5})" + "\n";
}

TEST(Metrics, WritesTheDocumentedObjects) {
  const TempFolder dir;
  {
    MetricsFile file(dir.path("metrics.jsonl"));
    file.write(EvalMetrics{0, static_cast<double>(4.16764688f), static_cast<double>(4.1648984f)});
    file.write(EvalMetrics{5, 2.5, 2.75, HeadMetrics{0.5, 0.25, 0.125}});
    file.write(IterMetrics{0, 4.25, 1e-3 / 101, 0.5, 40.12345, 19141.62});
    file.write_line(R"({"kind":"note"})");
    file.sync();
  }
  EXPECT_EQ(dir.read("metrics.jsonl"),
            R"({"kind":"eval","iter":0,"train_loss":4.16764688,"val_loss":4.1648984})"
            "\n"
            R"({"kind":"eval","iter":5,"train_loss":2.5,"val_loss":2.75,"attention_entropy":0.5,)"
            R"("grad_norm_query":0.25,"grad_norm_key":0.125})"
            "\n"
            R"({"kind":"iter","iter":0,"loss":4.25,"lr":9.900990099009901e-06,"grad_norm":0.5,)"
            R"("ms":40.123,"tokens_per_s":19141.6})"
            "\n"
            R"({"kind":"note"})"
            "\n");
}

TEST(Metrics, AppendsToWhatIsThere) {
  const TempFolder dir;
  const std::string path = dir.write("m", iter_text(0));
  MetricsFile(path).write_line("{}");
  MetricsFile(path).write_line("{}");
  EXPECT_EQ(dir.read("m"), iter_text(0) + "{}\n{}\n");
}

// An editor writes a new file; a folder that is exchanged holds another's.
TEST(Metrics, AnotherFileOfItsNameIsTakenWhereThatIsAllowed) {
  const TempFolder dir;
  bool is_ours = true;
  MetricsFile file(dir.path("m"), [&] {
    if (!is_ours) {
      throw std::runtime_error("no");
    }
  });
  file.write_line("1");
  std::filesystem::remove(dir.path("m"));
  dir.write("m", "edited\n");
  file.write_line("2");
  EXPECT_EQ(dir.read("m"), "edited\n2\n");
  std::filesystem::rename(dir.path("m"), dir.path("moved"));
  is_ours = false;
  EXPECT_THROW(file.write_line("3"), std::runtime_error);
  dir.write("m", "another's\n");
  EXPECT_THROW(file.write_line("4"), std::runtime_error);
  EXPECT_EQ(dir.read("m") + dir.read("moved"), "another's\nedited\n2\n");
  std::filesystem::rename(dir.path("moved"), dir.path("m"));
  file.write_line("5");
  EXPECT_EQ(dir.read("m"), "edited\n2\n3\n4\n5\n");
}

TEST(Metrics, NumbersThatJsonLacksAreNull) {
  const TempFolder dir;
  MetricsFile file(dir.path("m"));
  file.write(IterMetrics{3, std::nan(""), 0.0, HUGE_VAL, HUGE_VAL, std::nan("")});
  const nlohmann::json object = nlohmann::json::parse(dir.read("m"));
  EXPECT_TRUE(object["loss"].is_null());
  EXPECT_TRUE(object["grad_norm"].is_null());
  EXPECT_TRUE(object["ms"].is_null());
  EXPECT_TRUE(object["tokens_per_s"].is_null());
}

TEST(Metrics, NamesTheFileThatItCannotOpen) {
  const TempFolder dir;
  try {
    const MetricsFile file(dir.path("no/metrics.jsonl"));
    FAIL() << "opened";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("cannot write /", 0), 0U) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(": No such file or directory"));
  }
}

// A limit on the size of files stands in for a full disk: the write comes back short.
TEST(Metrics, TakesATornLineBackAndWritesItWithTheNext) {
  const TempFolder dir;
  MetricsFile file(dir.path("m"));
  file.write_line("{\"a\":1}");
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit tight = before;
  tight.rlim_cur = 12;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  std::string message;
  try {
    file.write_line("{\"a\":22222}");
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("cannot write "));
  EXPECT_THAT(message, HasSubstr(": File too large"));
  EXPECT_EQ(dir.read("m"), "{\"a\":1}\n");
  file.write_line("{\"a\":3}");
  EXPECT_EQ(dir.read("m"), "{\"a\":1}\n{\"a\":22222}\n{\"a\":3}\n");
}

TEST(Metrics, CutsWhatACheckpointDoesNotKnow) {
  const std::string start = eval_text(0) + iter_text(0) + iter_text(1) + "{\"kind\":\"note\"}\n";
  struct Case {
    std::string name, rest;
    int64_t next_iter;
    bool eval_done;
    std::string kept;
  };
  const std::vector<Case> cases = {
      {"nothing", "", 2, false, start},
      {"later iterations", iter_text(2) + iter_text(3), 2, false, start},
      {"evaluation not done", eval_text(2) + iter_text(2), 2, false, start},
      {"evaluation done", eval_text(2) + iter_text(2), 2, true, start + eval_text(2)},
      {"later evaluation", iter_text(2) + eval_text(4), 3, true, start + iter_text(2)},
      {"earlier evaluation", eval_text(2) + iter_text(2), 3, false,
       start + eval_text(2) + iter_text(2)},
      {"torn line", iter_text(2) + "{\"kind\":\"it", 3, false, start + iter_text(2)},
      {"whole but for its break", R"({"kind":"iter","iter":2})", 3, false, start},
      {"zeros", std::string(100, '\0'), 3, false, start},
      {"zeros and a break", std::string(100, '\0') + "\n", 3, false, start},
      {"unreadable in between", "\nno json\n" + iter_text(2), 3, false,
       start + "\nno json\n" + iter_text(2)},
      {"strange types", "{\"iter\":\"x\"}\n{\"iter\":2.5}\n{\"kind\":1}\n[1]\n", 3, false,
       start + "{\"iter\":\"x\"}\n{\"iter\":2.5}\n{\"kind\":1}\n"},
  };
  for (const Case& c : cases) {
    const TempFolder dir;
    cut_metrics(dir.write("m", start + c.rest), c.next_iter, c.eval_done);
    EXPECT_EQ(dir.read("m"), c.kept) << c.name;
  }
  const TempFolder dir;
  cut_metrics(dir.write("m", start), 0, true);
  EXPECT_EQ(dir.read("m"), eval_text(0));
  cut_metrics(dir.path("m"), 0, false);
  EXPECT_EQ(dir.read("m"), "");
  cut_metrics(dir.path("not there"), 5, false);
  EXPECT_FALSE(std::filesystem::exists(dir.path("not there")));
}

TEST(Metrics, DoesNotCutAFolder) {
  const TempFolder dir;
  std::filesystem::create_directory(dir.path("m"));
  try {
    cut_metrics(dir.path("m"), 0, false);
    FAIL() << "cut";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot read "));
    EXPECT_THAT(error.what(), HasSubstr(": Is a directory"));
  }
}

}  // namespace
}  // namespace chargrad::train
