// What is said about the experiment of scaling.h: a table, JSON, a page. Nothing here prints.
#pragma once

#include <string>

#include "tests/gradcheck/scaling.h"

namespace chargrad::tests {

// An aligned table, a line a row, what it shows, and the lesson's own pair.
std::string scaling_text(const ScalingResult& result);

// {"rows": [{"d_k", "scaled", "score_std", ...}, ...], ...}.
std::string scaling_json(const ScalingResult& result);

// One self-contained HTML page: curves over d_k on log axes, two attention rows side by side.
std::string scaling_page(const ScalingResult& result);

}  // namespace chargrad::tests
