// Which name a misspelt one was probably meant to be.
#pragma once

#include <string_view>
#include <vector>

namespace chargrad::train {

// The name nearest to `typed`, the first of equals; empty if none is near.
std::string_view nearest_name(std::string_view typed, const std::vector<std::string_view>& names);

}  // namespace chargrad::train
