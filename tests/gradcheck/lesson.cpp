#include "tests/gradcheck/lesson.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "engine/check.h"

namespace chargrad::tests {
namespace {

// One unit of the last digit: 0.0001 of "1.2544", 1e-15 of "7.02e-13", 1 of "15".
double unit_of(const std::string& printed) {
  const size_t exponent = std::min(printed.find('e'), printed.size());
  const size_t point = std::min(printed.find('.'), exponent);
  const auto digits = static_cast<double>(exponent - std::min(exponent, point + 1));
  const double power = exponent < printed.size() ? std::stod(printed.substr(exponent + 1)) : 0;
  return std::pow(10, power - digits);
}

// "[1, 2]" of element i in row-major order; nothing of a scalar.
std::string index_text(const Shape& shape, int64_t i) {
  std::vector<int64_t> index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = i % shape[dim];
    i /= shape[dim];
  }
  return index.empty() ? "" : fmt::format("{}", index);
}

}  // namespace

double units_off(const LessonNumber& number) {
  return (number.engine - std::stod(number.printed)) / unit_of(number.printed);
}

bool is_off(const LessonNumber& number) {
  // The slack is that of the decimal arithmetic here.
  return !(std::abs(units_off(number)) <= 1 + 1e-6);
}

void LessonSheet::note(const std::string& text) {
  lines_.push_back(text);
}

void LessonSheet::number(const std::string& label, const std::string& printed, double engine) {
  const LessonNumber number{label, printed, engine};
  const bool off = is_off(number);
  lines_.push_back(fmt::format("  {:<34} {:>10}  {:>16.9g}  {:>+9.1e}  {}", label, printed, engine,
                               engine - std::stod(printed), off ? "OFF" : "ok"));
  ++compared_;
  off_ += off ? 1 : 0;
}

void LessonSheet::numbers(const std::string& label, const std::vector<std::string>& printed,
                          const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  CHARGRAD_CHECK(values.size() == printed.size(), "lesson: ", label, " prints ", printed.size(),
                 " numbers, got a tensor of shape ", x.shape());
  for (size_t i = 0; i < values.size(); ++i) {
    number(label + index_text(x.shape(), static_cast<int64_t>(i)), printed[i], values[i]);
  }
}

void LessonSheet::claim(const std::string& text, bool holds) {
  lines_.push_back(fmt::format("  {:<74}  {}", text, holds ? "ok" : "OFF"));
  off_ += holds ? 0 : 1;
}

const std::vector<Lesson>& lessons() {
  static const std::vector<Lesson> all = [] {
    std::vector<Lesson> causal = causal_lessons(), result = {causal[0]};
    for (std::vector<Lesson> part : {trainable_lessons(), batched_lessons(),
                                     std::vector<Lesson>(causal.begin() + 1, causal.end())}) {
      std::move(part.begin(), part.end(), std::back_inserter(result));
    }
    return result;
  }();
  return all;
}

}  // namespace chargrad::tests
