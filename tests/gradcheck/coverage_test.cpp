// Nothing that can be differentiated goes unchecked: the menu of ops and the headers of the modules
// are read, and whatever they declare must have a case.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false ones in <regex> under sanitizers
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/gradcheck/cases.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

using Names = std::set<std::string>;

const fs::path kRoot = CHARGRAD_ROOT;

// Public ops without a gradient. Functions whose names end in _ change their input and are refused
// while gradients are recorded.
const Names kWithoutGradient = {
    "empty",     "empty_like", "zeros",    "ones",      "full",        "zeros_like",  "ones_like",
    "full_like", "arange",     "eye",      "scalar",    "tensor",      "from_vector", "rand",
    "randn",     "randint",    "randperm", "bernoulli", "multinomial", "eq",          "ne",
    "lt",        "le",         "gt",       "ge",        "argmax",
};

// What stands between a module and the classes that can be made.
const Names kAbstract = {"Layer", "LanguageModel"};

std::string code_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

// The first group of every match.
Names matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  Names names;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

// Names of all functions of ops.h that return a tensor or several.
Names functions_of(const std::string& code) {
  return matches(code,
                 R"((?:^|\n)(?:inline )?(?:Tensor|ValuesAndIndices|std::vector<Tensor>|Grads))"
                 R"([ \n]+(\w+) ?\()");
}

Names without(const Names& all, const Names& some) {
  Names rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(),
                      std::inserter(rest, rest.end()));
  return rest;
}

Names subjects() {
  Names names;
  for (const Case& c : all_cases()) {
    names.emplace(subject_of(c.name));
  }
  return names;
}

// The ops that must have rows.
Names differentiable_ops() {
  Names ops = without(functions_of(code_of(kRoot / "engine/ops.h")), kWithoutGradient);
  for (auto op = ops.begin(); op != ops.end();) {
    op = op->back() == '_' ? ops.erase(op) : std::next(op);
  }
  return ops;
}

TEST(Coverage, ReadsDeclarations) {
  EXPECT_EQ(functions_of("Tensor add(const Tensor& a);\nTensor add(double b);\n"
                         "std::vector<Tensor> split(\n  const Tensor& x);\n"
                         "struct ValuesAndIndices {\n  Tensor values;\n};\n"
                         "ValuesAndIndices max(const Tensor& x);\n  Tensor inner(int a);\n"
                         "template <class S>\nTensor from(S s);\nvoid seed(int n);\n"),
            (Names{"add", "split", "max", "from"}));
  const Names ops = differentiable_ops();
  EXPECT_GE(ops.size(), 55u);
  for (const char* op : {"add", "softmax", "split", "max", "scaled_dot_product_attention", "to"}) {
    EXPECT_EQ(ops.count(op), 1u) << op;
  }
}

TEST(Coverage, EveryOpHasACase) {
  EXPECT_THAT(without(differentiable_ops(), subjects()), IsEmpty());
}

TEST(Coverage, TheListOfOpsWithoutAGradientIsUpToDate) {
  EXPECT_THAT(without(kWithoutGradient, functions_of(code_of(kRoot / "engine/ops.h"))), IsEmpty());
}

TEST(Coverage, EveryRowNamesAnOp) {
  Names rows;
  for (const OpCase& row : op_cases()) {
    rows.emplace(subject_of(row.name));
  }
  EXPECT_THAT(without(rows, differentiable_ops()), IsEmpty());
}

// Of every op: a row with a dim of size 1 (or a scalar), one with a dim that is odd, one whose
// inputs are not contiguous (which view refuses).
TEST(Coverage, EveryOpHasTheUsualRows) {
  Names one, odd, strided = {"view"};
  const auto add_if = [](bool condition, Names& names, std::string_view op) {
    if (condition) {
      names.emplace(op);
    }
  };
  for (const OpCase& row : op_cases()) {
    const std::string_view op = subject_of(row.name);
    add_if(row.layout == Layout::kStrided, strided, op);
    for (const Shape& shape : row.shapes) {
      add_if(shape.empty(), one, op);
      for (const int64_t size : shape) {
        add_if(size == 1, one, op);
        add_if(size > 1 && size % 2 == 1, odd, op);
      }
    }
  }
  EXPECT_THAT(without(differentiable_ops(), one), IsEmpty());
  EXPECT_THAT(without(differentiable_ops(), odd), IsEmpty());
  EXPECT_THAT(without(differentiable_ops(), strided), IsEmpty());
}

TEST(Coverage, EveryModuleHasACase) {
  Names modules;
  for (const char* folder : {"nn", "models"}) {
    for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
      if (entry.path().extension() == ".h") {
        modules.merge(
            matches(code_of(entry.path()),
                    R"(\nclass (\w+) : public (?:nn::)?(?:Module|Layer|LanguageModel)\b)"));
      }
    }
  }
  EXPECT_GE(modules.size(), 15u);
  Names checked;
  for (const std::string& subject : subjects()) {
    checked.insert(subject == "gpt" ? "GPT" : subject.substr(subject.find('.') + 1));
  }
  EXPECT_THAT(without(without(modules, kAbstract), checked), IsEmpty());
}

// Names work as words of a shell and, with other characters replaced, as names of tests.
TEST(Coverage, CaseNames) {
  Names names;
  for (const Case& c : all_cases()) {
    EXPECT_TRUE(std::regex_match(c.name, std::regex(R"([\w.]+/[\w.-]+)"))) << c.name;
    EXPECT_TRUE(names.insert(std::regex_replace(c.name, std::regex(R"(\W)"), "_")).second)
        << c.name << " appears twice";
  }
  EXPECT_GE(names.size(), 120u);
}

}  // namespace
}  // namespace chargrad::tests
