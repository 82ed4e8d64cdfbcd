// The lines that train prints, and numbers as text. Nothing here prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace chargrad::train {

// The value, a NaN without its sign: "-nan" would say nothing more.
double unsigned_nan(double value);

// "step 250: train loss 2.4293, val loss 2.4447".
std::string eval_line(int64_t iter, double train_loss, double val_loss);

// "iter 10: loss 2.4293, time 40.12ms, 19142 tok/s".
std::string iter_line(int64_t iter, double loss, double ms, double tokens_per_s);

// `text` as a word that a shell reads back: quoted where it holds more than letters, digits and
// harmless signs.
std::string shell_word(std::string_view text);

// A JSON number that reads back exactly: nine significant digits where `value` is a float32, the
// shortest that does otherwise. JSON has no infinity and no NaN: null.
std::string json_number(double value);

}  // namespace chargrad::train
