// The graph of recorded ops as text for Graphviz.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace chargrad {

// The ops that made `x`, each as a box with its name and the shape of its result, in the order
// they ran, and the leaves that take a gradient as ellipses with their shapes; arrows go from an
// input to its op. A leaf listed in `names` shows its name. Inputs without a gradient are not in
// the graph. Throws where backward freed it. `dot -Tsvg` draws the text.
std::string to_dot(const Tensor& x, const std::vector<std::pair<std::string, Tensor>>& names = {});

}  // namespace chargrad
