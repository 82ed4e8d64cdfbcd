#include "engine/dot.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/check.h"
#include "engine/node.h"

namespace chargrad {
namespace {

// Every op below `root`, first to last.
std::vector<const Node*> ops_in_order(const Node* root) {
  std::vector<const Node*> found, pending;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      pending.push_back(node);
    }
  };
  visit(root);
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    CHARGRAD_CHECK(!node->freed, "to_dot: backward freed the graph at op '", node->op,
                   "'; draw it before, or keep it with retain_graph");
    found.push_back(node);
    for (const Edge& edge : node->edges) {
      visit(edge.node.get());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  return found;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += c;
  }
  return result + '"';
}

class DotText {
 public:
  explicit DotText(const std::vector<std::pair<std::string, Tensor>>& names) {
    for (const auto& [name, leaf] : names) {
      names_.emplace(leaf.impl(), name);
    }
  }

  // The leaf's identifier; declares it at its first use.
  std::string leaf(const TensorImpl* impl) {
    const auto [found, is_new] = leaves_.emplace(impl, fmt::format("leaf{}", leaves_.size()));
    if (is_new) {
      const auto name = names_.find(impl);
      declare(found->second, name == names_.end() ? "" : name->second, impl->shape,
              "shape=ellipse");
    }
    return found->second;
  }

  std::string op(const Node* node) {
    const auto [found, is_new] = ops_.emplace(node, fmt::format("op{}", ops_.size()));
    if (is_new) {
      declare(found->second, node->op, node->shape, "shape=box");
    }
    return found->second;
  }

  void arrow(const std::string& from, const std::string& to) {
    lines_ += fmt::format("  {} -> {};\n", from, to);
  }

  std::string text() const { return "digraph {\n" + lines_ + "}\n"; }

 private:
  void declare(const std::string& id, const std::string& name, const Shape& shape,
               const char* style) {
    // The line break is Graphviz's: a backslash and an n, which `quoted` must not touch.
    std::string label = quoted(name);
    label.insert(label.size() - 1,
                 fmt::format("{}[{}]", name.empty() ? "" : "\\n", fmt::join(shape, ", ")));
    lines_ += fmt::format("  {} [label={}, {}];\n", id, label, style);
  }

  std::unordered_map<const TensorImpl*, std::string> names_;
  std::unordered_map<const TensorImpl*, std::string> leaves_;
  std::unordered_map<const Node*, std::string> ops_;
  std::string lines_;
};

}  // namespace

std::string to_dot(const Tensor& x, const std::vector<std::pair<std::string, Tensor>>& names) {
  CHARGRAD_CHECK(x.defined(), "to_dot: the tensor is undefined");
  DotText dot(names);
  if (!x.grad_fn()) {
    dot.leaf(x.impl());
    return dot.text();
  }
  for (const Node* node : ops_in_order(x.grad_fn().get())) {
    const std::string id = dot.op(node);
    for (const Edge& edge : node->edges) {
      if (edge.node) {
        dot.arrow(dot.op(edge.node.get()), id);
      } else if (edge.leaf) {
        dot.arrow(dot.leaf(edge.leaf.get()), id);
      }
    }
  }
  return dot.text();
}

}  // namespace chargrad
