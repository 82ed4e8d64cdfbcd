#include "train/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace chargrad::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Another value that the setting allows, as a text.
std::string other_value(const Setting& setting) {
  if (!setting.choices.empty()) {
    return setting.choices.back();
  }
  if (std::holds_alternative<bool*>(setting.target)) {
    return setting.text() == "true" ? "false" : "true";
  }
  if (std::holds_alternative<int64_t*>(setting.target)) {
    return std::to_string(setting.whole.low + 1 == **std::get_if<int64_t*>(&setting.target)
                              ? setting.whole.low + 2
                              : setting.whole.low + 1);
  }
  return std::holds_alternative<double*>(setting.target) ? "0.12345678901234567" : "a/b c.txt";
}

template <class Settings>
void expect_well_described() {
  Settings settings;
  std::set<std::string> names;
  for (const Setting& setting : setting_list(settings)) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name << " is there twice";
    EXPECT_FALSE(setting.group.empty()) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_FALSE(setting.placeholder.empty()) << setting.name;
    // The default is a value that the setting takes, besides texts that are not given.
    if (!setting.text().empty()) {
      EXPECT_EQ(setting.assign_text(setting.text()), "") << setting.name;
    }
  }
}

TEST(Settings, EveryOneIsDescribedOnce) {
  expect_well_described<TrainSettings>();
  expect_well_described<SampleSettings>();
}

TEST(Settings, EachHasAMemberOfItsOwn) {
  TrainSettings probe;
  const SettingList names = setting_list(probe);
  for (const Setting& named : names) {
    TrainSettings settings;
    const SettingList list = setting_list(settings);
    EXPECT_EQ(list.find(named.name)->assign_text(other_value(named)), "") << named.name;
    const Json before = to_json(TrainSettings()), after = to_json(settings);
    for (const auto& item : before.items()) {
      if (item.key() == named.name && named.choices.size() != 1) {
        EXPECT_NE(item.value(), after[item.key()]) << named.name;
      } else {
        EXPECT_EQ(item.value(), after[item.key()]) << named.name << " changes " << item.key();
      }
    }
  }
}

struct Range {
  std::string name, low, high, below, above;
};

template <class Settings>
void expect_ranges(const std::vector<Range>& ranges) {
  Settings settings;
  const SettingList list = setting_list(settings);
  for (const Range& range : ranges) {
    const Setting* setting = list.find(range.name);
    ASSERT_NE(setting, nullptr) << range.name;
    EXPECT_EQ(setting->assign_text(range.low), "") << range.name;
    EXPECT_EQ(setting->assign_text(range.high), "") << range.name;
    // The message says what would be right.
    for (const std::string& wrong : {range.below, range.above}) {
      const std::string rule = setting->choices.empty()       ? " in ["
                               : setting->choices.size() == 1 ? "is not supported, only "
                                                              : "is not one of ";
      EXPECT_THAT(setting->assign_text(wrong), HasSubstr(rule)) << range.name;
    }
  }
  for (const Setting& setting : list) {
    const bool is_number = std::holds_alternative<int64_t*>(setting.target) ||
                           std::holds_alternative<double*>(setting.target);
    const bool is_listed = std::any_of(ranges.begin(), ranges.end(),
                                       [&](const Range& r) { return r.name == setting.name; });
    EXPECT_TRUE(is_listed || !is_number) << setting.name << " has no range here";
  }
}

TEST(Settings, RangesOfTrain) {
  expect_ranges<TrainSettings>({
      {"n_layer", "1", "1024", "0", "1025"},
      {"n_head", "1", "1024", "0", "1025"},
      {"n_embd", "1", "65536", "0", "65537"},
      {"head_size", "1", "65536", "0", "65537"},
      {"block_size", "1", "1048576", "0", "1048577"},
      {"dropout", "0", "1", "-0.1", "1.5"},
      {"batch_size", "1", "1048576", "0", "1048577"},
      {"gradient_accumulation_steps", "1", "1048576", "0", "1048577"},
      {"max_iters", "0", "1000000000000", "-1", "1000000000001"},
      {"max_seconds", "0", "1e9", "-1", "1.1e9"},
      {"learning_rate", "0", "1e30", "-1e-9", "inf"},
      {"warmup_iters", "0", "1000000000000", "-1", "1000000000001"},
      {"lr_decay_iters", "0", "1000000000000", "-1", "1000000000001"},
      {"min_lr", "0", "1e30", "-1e-9", "inf"},
      {"weight_decay", "0", "1e30", "-1", "inf"},
      {"beta1", "0", "0.999999", "-0.1", "1"},
      {"beta2", "0", "0.999999", "-0.1", "1"},
      {"grad_clip", "0", "1e30", "-1", "inf"},
      {"skip_nonfinite", "0", "1000000000000", "-1", "1000000000001"},
      {"eval_interval", "1", "1000000000000", "0", "1000000000001"},
      {"eval_iters", "1", "1048576", "0", "1048577"},
      {"log_interval", "1", "1000000000000", "0", "1000000000001"},
      {"checkpoint_minutes", "0", "1e7", "-1", "1.1e7"},
      {"seed", "-9223372036854775808", "9223372036854775807", "-9223372036854775809",
       "9223372036854775808"},
      {"threads", "0", "1024", "-1", "1025"},
      {"profile", "0", "1000000000000", "-1", "1000000000001"},
      {"dtype", "auto", "bfloat16", "int8", "FLOAT32"},
      {"model", "gpt", "bigram", "", "gpt2"},
      {"attention_scale", "sqrt_dk", "none", "", "sqrt"},
      {"device", "cpu", "cpu", "cuda", ""},
      {"init_from", "scratch", "resume", "gpt2", ""},
      {"preset", "cpu", "head", "gpu", ""},
  });
}

TEST(Settings, RangesOfSample) {
  expect_ranges<SampleSettings>({
      {"checkpoint", "best", "last", "", "first"},
      {"num_samples", "0", "1048576", "-1", "1048577"},
      {"max_new_tokens", "0", "1000000000000", "-1", "1000000000001"},
      {"temperature", "0", "1e30", "-0.5", "inf"},
      {"temperature", "1e-30", "1", "nan", "-inf"},
      {"top_k", "0", "1048576", "-1", "1048577"},
      {"top_p", "0", "1", "-1e-9", "1.5"},
      {"top_p", "1e-9", "0.5", "nan", "1.0000001"},
      {"seed", "-9223372036854775808", "9223372036854775807", "-9223372036854775809",
       "9223372036854775808"},
      {"threads", "0", "1024", "-1", "1025"},
  });
}

TEST(Settings, JsonReadsBackExactly) {
  TrainSettings settings;
  for (const Setting& setting : setting_list(settings)) {
    ASSERT_EQ(setting.assign_text(other_value(setting)), "") << setting.name;
  }
  const Json written = to_json(settings);
  const TrainSettings read = train_settings_from_json(Json::parse(written.dump()), "s.json");
  TrainSettings defaults;
  const Json again = to_json(read);
  for (const Setting& setting : setting_list(defaults)) {
    // What belongs to one call does not come from the run.
    const Json expected =
        setting.on_resume == OnResume::kAsked ? setting.json() : written[setting.name];
    EXPECT_EQ(again[setting.name], expected) << setting.name;
  }
  EXPECT_EQ(read.learning_rate, 0.12345678901234567);
  EXPECT_EQ(read.out_dir, "out");
  EXPECT_FALSE(read.overwrite);
}

std::string read_error(const Json& object) {
  try {
    train_settings_from_json(object, "run/settings.json");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Settings, StoredSettingsAreChecked) {
  TrainSettings settings;
  settings.data = "a.txt";
  const Json good = to_json(settings);
  EXPECT_EQ(read_error(good), "no error");
  Json later = good;
  later["from_a_later_version"] = 1;
  EXPECT_EQ(read_error(later), "no error");
  Json missing = good;
  missing.erase("n_layer");
  EXPECT_EQ(read_error(missing), "run/settings.json: n_layer is missing");
  Json wrong = good;
  wrong["beta1"] = 1.5;
  EXPECT_EQ(read_error(wrong), "run/settings.json: beta1=1.5 is not a number in [0, 1)");
  wrong["beta1"] = "x";
  EXPECT_EQ(read_error(wrong), "run/settings.json: beta1=\"x\" is not a number in [0, 1)");
  EXPECT_EQ(read_error(Json::array()), "run/settings.json: the settings are not a JSON object");
}

TEST(Settings, TextHasALineAGroup) {
  TrainSettings settings;
  settings.data = "my\ntext.txt";
  const std::string text = settings_text(setting_list(settings));
  EXPECT_THAT(text, StartsWith("File: data=my\\x0atext.txt out_dir=out "));
  EXPECT_THAT(text, HasSubstr("\nModel: model=gpt n_layer=4 "));
  EXPECT_THAT(text, HasSubstr(" learning_rate=0.001 decay_lr=true "));
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace chargrad::train
