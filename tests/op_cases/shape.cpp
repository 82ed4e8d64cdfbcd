#include "engine/ops.h"
#include "tests/op_cases/op_cases.h"

namespace chargrad::tests {
namespace {

using Inputs = std::vector<Tensor>;

// Rows of one op.
struct Rows {
  std::vector<OpCase>& all;
  std::string op;

  void add(const std::string& variant, const std::vector<Shape>& shapes,
           const std::function<Tensor(const Inputs&)>& f) const {
    all.push_back({op + "/" + variant, shapes, f});
  }
  void add_strided(const std::string& variant, const std::vector<Shape>& shapes,
                   const std::function<Tensor(const Inputs&)>& f) const {
    all.push_back({op + "/" + variant, shapes, f, Draw::kNormal, Layout::kStrided});
  }
};

// Weighs the pieces differently, so that each one's gradient shows.
Tensor join(const std::vector<Tensor>& pieces) {
  Tensor total = sum(pieces[0]);
  for (size_t i = 1; i < pieces.size(); ++i) {
    total = total + sum(pieces[i] * pieces[i]) * static_cast<double>(i);
  }
  return total;
}

void add_views(std::vector<OpCase>& all) {
  const Rows view_rows{all, "view"};
  view_rows.add("usual", {{4, 6}}, [](const Inputs& in) { return view(in[0], {2, 2, 6}); });
  view_rows.add("inferred", {{3, 5}}, [](const Inputs& in) { return view(in[0], {-1}); });
  view_rows.add("size_1", {{1}}, [](const Inputs& in) { return view(in[0], {1, 1}); });
  view_rows.add("scalar", {{1, 1}}, [](const Inputs& in) { return view(in[0], {}); });
  view_rows.add_strided("strided", {{2, 3, 4}}, [](const Inputs& in) {
    return view(in[0], {2, 1, 3, 2, 2});
  });

  const Rows reshape_rows{all, "reshape"};
  reshape_rows.add("usual", {{4, 6}}, [](const Inputs& in) { return reshape(in[0], {3, 8}); });
  reshape_rows.add("size_1", {{1, 1}}, [](const Inputs& in) { return reshape(in[0], {1}); });
  reshape_rows.add("odd", {{3, 7}}, [](const Inputs& in) { return reshape(in[0], {7, -1}); });
  reshape_rows.add_strided("strided", {{3, 4}}, [](const Inputs& in) {
    return reshape(in[0], {2, 6});
  });

  const Rows flatten_rows{all, "flatten"};
  flatten_rows.add("all", {{2, 3, 2}}, [](const Inputs& in) { return flatten(in[0]); });
  flatten_rows.add("part", {{2, 3, 1, 3}}, [](const Inputs& in) { return flatten(in[0], 1, -2); });
  flatten_rows.add("scalar", {{}}, [](const Inputs& in) { return flatten(in[0]); });
  flatten_rows.add_strided("strided", {{3, 5}}, [](const Inputs& in) { return flatten(in[0]); });

  const Rows squeeze_rows{all, "squeeze"};
  squeeze_rows.add("all", {{1, 3, 1}}, [](const Inputs& in) { return squeeze(in[0]); });
  squeeze_rows.add("dim", {{1, 3, 1}}, [](const Inputs& in) { return squeeze(in[0], -1); });
  squeeze_rows.add("size_1", {{1}}, [](const Inputs& in) { return squeeze(in[0], 0); });
  squeeze_rows.add_strided("strided", {{3, 1, 5}},
                           [](const Inputs& in) { return squeeze(in[0], 1); });

  const Rows unsqueeze_rows{all, "unsqueeze"};
  unsqueeze_rows.add("front", {{3, 5}}, [](const Inputs& in) { return unsqueeze(in[0], 0); });
  unsqueeze_rows.add("last", {{3, 5}}, [](const Inputs& in) { return unsqueeze(in[0], -1); });
  unsqueeze_rows.add("size_1", {{1}}, [](const Inputs& in) { return unsqueeze(in[0], 1); });
  unsqueeze_rows.add("scalar", {{}}, [](const Inputs& in) { return unsqueeze(in[0], 0); });
  unsqueeze_rows.add_strided("strided", {{3, 5}},
                             [](const Inputs& in) { return unsqueeze(in[0], 1); });
}

void add_orders(std::vector<OpCase>& all) {
  const Rows transpose_rows{all, "transpose"};
  transpose_rows.add("usual", {{3, 4}}, [](const Inputs& in) { return transpose(in[0], 0, 1); });
  transpose_rows.add("heads", {{2, 3, 2, 5}},
                     [](const Inputs& in) { return transpose(in[0], 1, -2); });
  transpose_rows.add("size_1", {{1, 1}}, [](const Inputs& in) { return transpose(in[0], 0, 1); });
  transpose_rows.add_strided("strided", {{2, 3, 5}},
                             [](const Inputs& in) { return transpose(in[0], 0, 2); });

  const Rows permute_rows{all, "permute"};
  permute_rows.add("usual", {{2, 3, 4}}, [](const Inputs& in) {
    return permute(in[0], {2, 0, 1});
  });
  permute_rows.add("negative", {{2, 3, 5}}, [](const Inputs& in) {
    return permute(in[0], {-1, 0, -2});
  });
  permute_rows.add("size_1", {{1}}, [](const Inputs& in) { return permute(in[0], {0}); });
  permute_rows.add_strided("strided", {{2, 3, 5}}, [](const Inputs& in) {
    return permute(in[0], {1, 2, 0});
  });

  const Rows expand_rows{all, "expand"};
  expand_rows.add("column", {{3, 1}}, [](const Inputs& in) { return expand(in[0], {3, 4}); });
  expand_rows.add("new_dims", {{5}}, [](const Inputs& in) { return expand(in[0], {2, 3, -1}); });
  expand_rows.add("scalar", {{}}, [](const Inputs& in) { return expand(in[0], {7}); });
  expand_rows.add("size_1", {{1}}, [](const Inputs& in) { return expand(in[0], {1}); });
  expand_rows.add_strided("strided", {{3, 1, 5}}, [](const Inputs& in) {
    return expand(in[0], {2, 3, 2, 5});
  });

  const Rows contiguous_rows{all, "contiguous"};
  contiguous_rows.add("usual", {{3, 4}}, [](const Inputs& in) { return contiguous(in[0]); });
  contiguous_rows.add("transposed", {{3, 5}},
                      [](const Inputs& in) { return contiguous(transpose(in[0], 0, 1)); });
  contiguous_rows.add("size_1", {{1}}, [](const Inputs& in) { return contiguous(in[0]); });
  contiguous_rows.add_strided("strided", {{2, 3, 5}},
                              [](const Inputs& in) { return contiguous(in[0]); });

  const Rows clone_rows{all, "clone"};
  clone_rows.add("usual", {{3, 4}}, [](const Inputs& in) { return clone(in[0]); });
  clone_rows.add("size_1", {{1}}, [](const Inputs& in) { return clone(in[0]); });
  clone_rows.add_strided("strided", {{3, 5}}, [](const Inputs& in) { return clone(in[0]); });

  // To float64 only: the differences of a float32 result would be lost in its rounding.
  const Rows to_rows{all, "to"};
  to_rows.add("same", {{3, 5}}, [](const Inputs& in) { return to(in[0], in[0].dtype()); });
  to_rows.add("size_1", {{1}}, [](const Inputs& in) { return to(in[0], kFloat64); });
  to_rows.add_strided("strided", {{3, 5}}, [](const Inputs& in) { return to(in[0], kFloat64); });
}

void add_parts(std::vector<OpCase>& all) {
  const Rows narrow_rows{all, "narrow"};
  narrow_rows.add("usual", {{3, 5}}, [](const Inputs& in) { return narrow(in[0], 1, 1, 3); });
  narrow_rows.add("negative", {{7}}, [](const Inputs& in) { return narrow(in[0], -1, -2, 2); });
  narrow_rows.add("size_1", {{1}}, [](const Inputs& in) { return narrow(in[0], 0, 0, 1); });
  narrow_rows.add_strided("strided", {{2, 3, 5}},
                          [](const Inputs& in) { return narrow(in[0], 2, 2, 2); });

  const Rows slice_rows{all, "slice"};
  slice_rows.add("usual", {{3, 5}}, [](const Inputs& in) { return slice(in[0], 1, 1, 4); });
  slice_rows.add("step", {{11}}, [](const Inputs& in) { return slice(in[0], 0, 1, 99, 3); });
  slice_rows.add("negative", {{7, 2}}, [](const Inputs& in) { return slice(in[0], 0, -3, -1); });
  slice_rows.add("size_1", {{1}}, [](const Inputs& in) { return slice(in[0], 0, 0, 1); });
  slice_rows.add_strided("strided", {{2, 7}},
                         [](const Inputs& in) { return slice(in[0], -1, 0, 7, 2); });

  const Rows select_rows{all, "select"};
  select_rows.add("usual", {{3, 5}}, [](const Inputs& in) { return select(in[0], 0, 1); });
  select_rows.add("negative", {{2, 3, 5}}, [](const Inputs& in) { return select(in[0], -2, -1); });
  select_rows.add("size_1", {{1}}, [](const Inputs& in) { return select(in[0], 0, 0); });
  select_rows.add_strided("strided", {{3, 5}},
                          [](const Inputs& in) { return select(in[0], 1, 2); });

  const Rows split_rows{all, "split"};
  split_rows.add("size", {{3, 5}}, [](const Inputs& in) { return join(split(in[0], 2, 1)); });
  split_rows.add("sizes", {{6, 2}}, [](const Inputs& in) {
    return join(split(in[0], std::vector<int64_t>{1, 3, 2}));
  });
  split_rows.add("size_1", {{1}}, [](const Inputs& in) { return join(split(in[0], 1)); });
  split_rows.add_strided("strided", {{2, 3, 7}},
                         [](const Inputs& in) { return join(split(in[0], 3, -1)); });

  const Rows chunk_rows{all, "chunk"};
  chunk_rows.add("usual", {{2, 6}}, [](const Inputs& in) { return join(chunk(in[0], 3, 1)); });
  chunk_rows.add("uneven", {{7}}, [](const Inputs& in) { return join(chunk(in[0], 3)); });
  chunk_rows.add("size_1", {{1}}, [](const Inputs& in) { return join(chunk(in[0], 4)); });
  chunk_rows.add_strided("strided", {{5, 3}},
                         [](const Inputs& in) { return join(chunk(in[0], 2)); });
}

void add_joins(std::vector<OpCase>& all) {
  const Rows cat_rows{all, "cat"};
  cat_rows.add("first", {{2, 3}, {1, 3}, {4, 3}}, [](const Inputs& in) { return cat(in); });
  cat_rows.add("last", {{2, 3}, {2, 5}}, [](const Inputs& in) { return cat(in, -1); });
  cat_rows.add("size_1", {{1}}, [](const Inputs& in) { return cat(in); });
  cat_rows.add("itself", {{3}}, [](const Inputs& in) { return cat({in[0], in[0] * in[0]}); });
  cat_rows.add_strided("strided", {{2, 3, 2}, {2, 4, 2}},
                       [](const Inputs& in) { return cat(in, 1); });

  const Rows stack_rows{all, "stack"};
  stack_rows.add("first", {{2, 3}, {2, 3}}, [](const Inputs& in) { return stack(in); });
  stack_rows.add("last", {{5}, {5}, {5}}, [](const Inputs& in) { return stack(in, -1); });
  stack_rows.add("scalars", {{}, {}}, [](const Inputs& in) { return stack(in); });
  stack_rows.add("size_1", {{1}}, [](const Inputs& in) { return stack(in); });
  stack_rows.add_strided("strided", {{3, 5}, {3, 5}},
                         [](const Inputs& in) { return stack(in, 1); });
}

void add_triangles(std::vector<OpCase>& all) {
  using Triangle = Tensor (*)(const Tensor&, int64_t);
  for (const auto& [name, f] : {std::pair<const char*, Triangle>{"tril", tril}, {"triu", triu}}) {
    const Triangle triangle = f;
    const Rows rows{all, name};
    rows.add("usual", {{4, 4}}, [triangle](const Inputs& in) { return triangle(in[0], 0); });
    rows.add("above", {{2, 3, 5}}, [triangle](const Inputs& in) { return triangle(in[0], 1); });
    rows.add("below", {{5, 3}}, [triangle](const Inputs& in) { return triangle(in[0], -2); });
    rows.add("size_1", {{1, 1}}, [triangle](const Inputs& in) { return triangle(in[0], 0); });
    rows.add_strided("strided", {{2, 3, 5}},
                     [triangle](const Inputs& in) { return triangle(in[0], 0); });
  }
}

}  // namespace

std::vector<OpCase> shape_cases() {
  std::vector<OpCase> all;
  add_views(all);
  add_orders(all);
  add_parts(all);
  add_joins(all);
  add_triangles(all);
  return all;
}

}  // namespace chargrad::tests
