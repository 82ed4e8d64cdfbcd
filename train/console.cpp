#include "train/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace chargrad::train {

double unsigned_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

std::string eval_line(int64_t iter, double train_loss, double val_loss) {
  return fmt::format("step {}: train loss {:.4f}, val loss {:.4f}", iter, unsigned_nan(train_loss),
                     unsigned_nan(val_loss));
}

std::string iter_line(int64_t iter, double loss, double ms, double tokens_per_s) {
  return fmt::format("iter {}: loss {:.4f}, time {:.2f}ms, {:.0f} tok/s", iter, unsigned_nan(loss),
                     ms, tokens_per_s);
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kHarmless = "%+,-./:=@_";
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kHarmless.find(c) != std::string_view::npos;
  });
  if (is_plain) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return word + "'";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  const bool is_float = std::abs(value) <= std::numeric_limits<float>::max() &&
                        static_cast<double>(static_cast<float>(value)) == value;
  return is_float ? fmt::format("{:.9g}", value) : fmt::format("{}", value);
}

}  // namespace chargrad::train
