// Which cases the words of a command line mean.
#pragma once

#include <string>
#include <vector>

#include "tests/gradcheck/cases.h"

namespace chargrad::tests {

// The cases that any of the patterns picks, in the order of `cases`; all without a pattern.
// A pattern with a * (any characters) or ? (one character) must fit a case's whole name. One
// without is what stands before the slash of a name, or a whole name ("softmax" picks softmax/...
// and leaves log_softmax/... alone); failing that, any part of a name.
// Throws std::invalid_argument naming the nearest subject for a pattern that picks nothing.
std::vector<Case> select_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& patterns);

}  // namespace chargrad::tests
