#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

using Inputs = std::vector<Tensor>;

Tensor ids(const std::vector<int64_t>& values, const Shape& shape) {
  return from_vector(values, shape);
}

}  // namespace

std::vector<OpCase> index_cases() {
  std::vector<OpCase> rows;
  const auto select_row = [&rows](const std::string& variant, const Shape& x, int64_t dim,
                                  const std::vector<int64_t>& index,
                                  Layout layout = Layout::kContiguous) {
    rows.push_back({"index_select/" + variant,
                    {x},
                    [dim, index](const Inputs& in) {
                      return index_select(in[0], dim,
                                          ids(index, {static_cast<int64_t>(index.size())}));
                    },
                    Draw::kNormal,
                    layout});
  };
  select_row("first", {4, 3}, 0, {3, 0, 3});
  select_row("last", {3, 5}, -1, {1, 1, 4, 0, 1, 2, 2});
  select_row("middle", {2, 3, 5}, 1, {2, 2});
  select_row("size_1", {1}, 0, {0});
  select_row("strided", {3, 5}, 0, {1, 1, 2}, Layout::kStrided);

  const auto gather_row = [&rows](const std::string& variant, const Shape& x, int64_t dim,
                                  const std::vector<int64_t>& index, const Shape& shape,
                                  Layout layout = Layout::kContiguous) {
    rows.push_back(
        {"gather/" + variant,
         {x},
         [dim, index, shape](const Inputs& in) { return gather(in[0], dim, ids(index, shape)); },
         Draw::kNormal,
         layout});
  };
  gather_row("targets", {3, 5}, -1, {4, 0, 2}, {3, 1});
  gather_row("first", {3, 2}, 0, {0, 1, 0, 2, 0, 1, 2, 1}, {4, 2});
  gather_row("smaller", {3, 4, 2}, 1, {3, 3, 0, 1}, {2, 2, 1});
  gather_row("size_1", {1}, 0, {0}, {1});
  gather_row("strided", {3, 5}, 1, {4, 4, 0, 1, 2, 2}, {3, 2}, Layout::kStrided);

  const auto embedding_row = [&rows](const std::string& variant, const Shape& weight,
                                     const std::vector<int64_t>& index, const Shape& shape,
                                     Layout layout = Layout::kContiguous) {
    rows.push_back(
        {"embedding/" + variant,
         {weight},
         [index, shape](const Inputs& in) { return embedding(ids(index, shape), in[0]); },
         Draw::kNormal,
         layout});
  };
  embedding_row("usual", {5, 3}, {0, 4, 4, 2, 0, 4}, {2, 3});
  embedding_row("odd", {7, 11}, {6, 6, 1}, {3});
  embedding_row("size_1", {1, 1}, {0, 0}, {2});
  embedding_row("scalar", {4, 3}, {2}, {});
  embedding_row("strided", {5, 3}, {1, 3, 1}, {3, 1}, Layout::kStrided);
  return rows;
}

}  // namespace chargrad::tests
