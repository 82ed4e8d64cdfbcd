#include "engine/kernels/attention.h"

#include <cmath>
#include <limits>

#include "tests/engine/kernels/kernel_testing.h"

namespace chargrad::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Layout {
  kHeads,    // (B, H, rows, cols), as a contiguous tensor has it
  kRows,     // (B, rows, H, cols) with a gap after each row, as a layer makes it
  kColumns,  // (B, H, cols, rows) with a gap; no stride is 1
};

struct Size {
  int64_t B, H, rows, cols;
  int64_t count() const { return B * H * rows * cols; }
};

// B * H matrices in memory of some layout, between marks.
template <class S>
class Heads {
 public:
  Heads(const Size& size, Layout layout) : size_(size), layout_(layout), memory_(elements()) {
    view_.data = memory_.data();
    std::fill_n(memory_.data(), elements(), S(kGap));
    const auto [B, H, rows, cols] = size;
    if (layout == Layout::kHeads) {
      set_strides(H * rows * cols, rows * cols, cols, 1);
    } else if (layout == Layout::kRows) {
      set_strides(rows * (H * cols + 3), cols, H * cols + 3, 1);
    } else {
      set_strides(H * cols * (2 * rows + 1), cols * (2 * rows + 1), 2, 2 * rows + 1);
    }
  }
  Heads(const Size& size, Layout layout, const std::vector<double>& values) : Heads(size, layout) {
    for_each([&](size_t i, S& element) { element = S(static_cast<Wide<S>>(values[i])); });
  }

  HeadsView<S> view() { return view_; }
  HeadsView<const S> read() {
    return {view_.data, view_.batch, view_.head, view_.row, view_.column};
  }

  // The elements in the order (B, H, rows, cols). Nothing else may have changed.
  std::vector<S> get() {
    std::vector<S> result(static_cast<size_t>(size_.count()));
    for_each([&](size_t i, S& element) {
      result[i] = element;
      element = S(kGap);
    });
    const std::vector<S> rest = memory_.get();
    EXPECT_TRUE(memory_.intact());
    EXPECT_TRUE(std::all_of(rest.begin(), rest.end(), [](S x) { return x == S(kGap); }));
    return result;
  }

 private:
  static constexpr float kGap = 77;

  int64_t elements() const {
    const auto [B, H, rows, cols] = size_;
    switch (layout_) {
      case Layout::kHeads:
        return size_.count();
      case Layout::kRows:
        return B * rows * (H * cols + 3);
      case Layout::kColumns:
        return B * H * cols * (2 * rows + 1);
    }
    return 0;
  }
  void set_strides(int64_t batch, int64_t head, int64_t row, int64_t column) {
    view_.batch = batch;
    view_.head = head;
    view_.row = row;
    view_.column = column;
  }
  template <class F>
  void for_each(const F& f) {
    size_t index = 0;
    for (int64_t b = 0; b < size_.B; ++b) {
      for (int64_t h = 0; h < size_.H; ++h) {
        for (int64_t i = 0; i < size_.rows; ++i) {
          for (int64_t j = 0; j < size_.cols; ++j) {
            f(index++,
              view_.data[b * view_.batch + h * view_.head + i * view_.row + j * view_.column]);
          }
        }
      }
    }
  }

  Size size_;
  Layout layout_;
  Guarded<S> memory_;
  HeadsView<S> view_;
};

enum class Mask { kNone, kCausal, kAdded };

struct Problem {
  int64_t B = 1, H = 1, T = 1, keys = 1, D = 1, E = 1;
  Mask mask = Mask::kNone;
  double dropout_p = 0;
  double scale = 0.35;
  double spread = 1;  // q and k are uniform in [-spread, spread)

  Size q_size() const { return {B, H, T, D}; }
  Size k_size() const { return {B, H, keys, D}; }
  Size v_size() const { return {B, H, keys, E}; }
  Size y_size() const { return {B, H, T, E}; }
};

// The inputs of a problem, all of them numbers of S.
template <class S>
struct Inputs {
  std::vector<double> q, k, v, dy, mask;

  explicit Inputs(const Problem& p)
      : q(draw(p.q_size(), 1, p.spread)),
        k(draw(p.k_size(), 2, p.spread)),
        v(draw(p.v_size(), 3, 1)),
        dy(draw(p.y_size(), 4, 1)),
        mask(to_double(random_values<float>(p.B * p.H * p.T * p.keys, 5, -2, 2))) {
    for (size_t i = 0; i < mask.size(); i += 3) {
      mask[i] = -kInf;
    }
    // One row of the second head sees nothing.
    const auto row = static_cast<size_t>(p.keys);
    for (size_t i = 0; p.H * p.T >= 2 && i < row; ++i) {
      mask[(static_cast<size_t>(p.H * p.T) - 1) * row + i] = -kInf;
    }
  }

 private:
  static std::vector<double> draw(const Size& size, uint32_t seed, double spread) {
    const std::vector<float> values = random_values<float>(size.count(), seed, -spread, spread);
    return to_double(std::vector<S>(values.begin(), values.end()));
  }
};

template <class S>
struct Results {
  std::vector<S> y, dq, dk, dv;
  std::vector<Wide<S>> lse;
};

template <class S, class In>
Results<S> run(const Problem& p, const Inputs<In>& in, Layout layout) {
  const Layout out = layout == Layout::kColumns ? Layout::kRows : layout;  // Column stride 1.
  Heads<S> q(p.q_size(), layout, in.q), k(p.k_size(), layout, in.k), v(p.v_size(), layout, in.v);
  Heads<Wide<S>> mask({p.B, p.H, p.T, p.keys}, out, in.mask);
  AttentionArgs<S> args;
  args.B = p.B;
  args.H = p.H;
  args.T = p.T;
  args.keys = p.keys;
  args.D = p.D;
  args.E = p.E;
  args.q = q.read();
  args.k = k.read();
  args.v = v.read();
  if (p.mask == Mask::kAdded) {
    args.mask = mask.read();
  }
  args.scale = static_cast<Wide<S>>(p.scale);
  args.is_causal = p.mask == Mask::kCausal;
  args.dropout_p = p.dropout_p;
  args.key = {11, 12};

  Results<S> results;
  Heads<S> y(p.y_size(), out);
  Guarded<Wide<S>> lse(p.B * p.H * p.T);
  attention_forward(args, y.view(), lse.data());
  Heads<S> dy(p.y_size(), out, in.dy);
  Heads<S> dq(p.q_size(), out), dk(p.k_size(), out), dv(p.v_size(), out);
  attention_backward<S>(args, {y.read(), dy.read(), lse.data()}, {dq.view(), dk.view(), dv.view()});
  EXPECT_TRUE(lse.intact());
  results.lse = lse.get();
  results.y = y.get();
  results.dq = dq.get();
  results.dk = dk.get();
  results.dv = dv.get();
  return results;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

// How far results may be from double's. `each`: a result, in units of the largest of its kind, or
// of `least` where that is less (a gradient may cancel to nothing). `all`: the factor that all
// results of a kind are off by on average.
struct Tolerance {
  double each, all, least;
};

// A score has the error of D multiply-adds of numbers below 1, a few 1e-7 for D <= 70, and as much
// from its exponential; y averages numbers below 1. Gradients add up at most 600 products of
// numbers that have such errors, of either sign.
constexpr Tolerance kFloatTolerance = {1e-5, 1e-5, 0.01};
// The weights, the gradients of scores and the results are rounded by 2^-9 of themselves, and dy y
// has the rounding of y. Of either sign, these hardly change the average.
constexpr Tolerance kBFloat16Tolerance = {0x1p-6, 0.005, 0.1};

template <class S>
constexpr Tolerance tolerance_of() {
  return std::is_same_v<S, bfloat16> ? kBFloat16Tolerance : kFloatTolerance;
}

// The factor a that brings `want` times a closest to `got`.
template <class S>
double average_factor(const std::vector<S>& got, const std::vector<double>& want) {
  return dot(to_double(got), want) / dot(want, want);
}

// Results that are 1 % off are not within the tolerance, all of them or, in float32, the largest.
template <class S>
void expect_near(const std::vector<S>& got, const std::vector<double>& want,
                 const std::string& what) {
  const Tolerance tolerance = tolerance_of<S>();
  const double most = largest(want);
  const bool each_is_narrow = most > tolerance.least && tolerance.each < 0.01;
  EXPECT_TRUE(near(got, want, tolerance.each * std::max(most, tolerance.least), 0,
                   each_is_narrow ? OnePercent::kFails : OnePercent::kPasses))
      << what;
  if (most > tolerance.least) {
    EXPECT_TRUE(near(std::vector<double>{average_factor(got, want)}, {1}, tolerance.all, 0))
        << what << ", on average";
  }
}

template <class S>
void expect_agrees(const Problem& p, Layout layout) {
  const Inputs<S> in(p);
  const Results<S> got = run<S>(p, in, layout);
  const Results<double> want = run<double>(p, in, Layout::kHeads);
  const std::string what =
      testing::PrintToString(std::vector<int64_t>{p.B, p.H, p.T, p.keys, p.D, p.E}) + " layout " +
      std::to_string(static_cast<int>(layout)) + " mask " +
      std::to_string(static_cast<int>(p.mask)) + " dropout " + std::to_string(p.dropout_p);
  expect_near(got.y, want.y, "y of " + what);
  expect_near(got.dq, want.dq, "dq of " + what);
  expect_near(got.dk, want.dk, "dk of " + what);
  expect_near(got.dv, want.dv, "dv of " + what);
  // Scores of a few units and the logarithm of a sum, each rounded by 6e-8 of itself.
  EXPECT_TRUE(near(got.lse, want.lse, 3e-6, 0)) << what;
}

template <class S>
class AttentionOf : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(AttentionOf, Types);

TYPED_TEST(AttentionOf, AgreesWithDoubleAroundTheBlocks) {
  for (const int64_t T : {1, 2, 5, 31, 32, 33, 64, 70}) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal, Mask::kAdded}) {
      Problem p;
      p.B = 2;
      p.H = 2;
      p.T = T;
      p.keys = mask == Mask::kCausal ? T : T + 3;
      p.D = T % 2 == 0 ? 32 : 5;
      p.E = T % 2 == 0 ? 32 : 19;
      p.mask = mask;
      p.dropout_p = T % 3 == 0 ? 0.25 : 0;
      expect_agrees<TypeParam>(p, static_cast<Layout>(T % 3));
    }
  }
}

TYPED_TEST(AttentionOf, AgreesWithDoubleOverSeveralBlocksOfKeys) {
  Problem p;
  p.T = 37;
  p.keys = 530;
  p.D = 7;
  p.E = 3;
  for (const double dropout_p : {0.0, 0.3}) {
    p.dropout_p = dropout_p;
    p.mask = Mask::kAdded;
    expect_agrees<TypeParam>(p, Layout::kRows);
  }
  p.T = p.keys = 290;
  p.mask = Mask::kCausal;
  expect_agrees<TypeParam>(p, Layout::kHeads);
  p.D = 70;
  p.E = 66;
  p.T = 20;
  p.mask = Mask::kNone;
  expect_agrees<TypeParam>(p, Layout::kColumns);
}

TYPED_TEST(AttentionOf, CausalWithMoreKeysOrMoreQueries) {
  Problem p;
  p.D = 8;
  p.E = 4;
  p.mask = Mask::kCausal;
  for (const auto& [T, keys] : {std::pair<int64_t, int64_t>{3, 300}, {40, 7}, {300, 260}, {1, 9}}) {
    p.T = T;
    p.keys = keys;
    expect_agrees<TypeParam>(p, Layout::kRows);
  }
}

// Scores of up to +-250, of which a row's weights hold a few: a score is rounded by 1e-5, and so
// are the weights.
TEST(Attention, LargeScores) {
  Problem p;
  p.T = 9;
  p.keys = 300;
  p.D = 4;
  p.E = 4;
  p.spread = 15;
  p.scale = 1;
  const Inputs<float> in(p);
  const Results<float> got = run<float>(p, in, Layout::kHeads);
  const Results<double> want = run<double>(p, in, Layout::kHeads);
  EXPECT_TRUE(near(got.y, want.y, 3e-5, 0));
  EXPECT_TRUE(near(got.dv, want.dv, 1e-4, 0));
  p.scale = -1;
  EXPECT_TRUE(
      near(run<float>(p, in, Layout::kHeads).y, run<double>(p, in, Layout::kHeads).y, 3e-5, 0));
}

TYPED_TEST(AttentionOf, ARowThatSeesNothing) {
  Problem p;
  p.H = 2;
  p.T = 3;
  p.keys = 5;
  p.D = 4;
  p.E = 2;
  p.mask = Mask::kAdded;
  const Results<TypeParam> results = run<TypeParam>(p, Inputs<TypeParam>(p), Layout::kHeads);
  EXPECT_EQ(results.lse.back(), -kInf);
  const std::vector<double> y = to_double(results.y), dq = to_double(results.dq);
  EXPECT_EQ(std::vector<double>(y.end() - 2, y.end()), std::vector<double>(2, 0));
  EXPECT_EQ(std::vector<double>(dq.end() - 4, dq.end()), std::vector<double>(4, 0));
}

TYPED_TEST(AttentionOf, NothingToSeeAndNobodyToLook) {
  Problem p;
  p.T = 3;
  p.keys = 0;
  p.E = 2;
  const Results<TypeParam> no_keys = run<TypeParam>(p, Inputs<TypeParam>(p), Layout::kHeads);
  EXPECT_EQ(to_double(no_keys.y), std::vector<double>(6, 0));
  EXPECT_EQ(to_double(no_keys.dq), std::vector<double>(3, 0));
  p.T = 0;
  p.keys = 3;
  const Results<TypeParam> no_rows = run<TypeParam>(p, Inputs<TypeParam>(p), Layout::kHeads);
  EXPECT_EQ(to_double(no_rows.dk), std::vector<double>(3, 0));
  EXPECT_EQ(to_double(no_rows.dv), std::vector<double>(6, 0));
}

TYPED_TEST(AttentionOf, ANaNStaysInItsRow) {
  Problem p;
  p.T = 3;
  p.keys = 270;
  p.mask = Mask::kNone;
  Inputs<TypeParam> in(p);
  in.q[1] = std::nan("");
  const Results<TypeParam> results = run<TypeParam>(p, in, Layout::kHeads);
  EXPECT_TRUE(std::isnan(results.y[1]));
  EXPECT_TRUE(std::isnan(results.lse[1]));
  EXPECT_TRUE(std::isfinite(results.y[0]) && std::isfinite(results.y[2]));
}

// The row that sees keys 0 .. i, computed alone over those keys, as decoding does.
TYPED_TEST(AttentionOf, ARowAloneHasTheSameBits) {
  Problem all;
  all.T = all.keys = 300;
  all.D = 24;
  all.E = 20;
  all.mask = Mask::kCausal;
  const Inputs<TypeParam> in(all);
  const Results<TypeParam> together = run<TypeParam>(all, in, Layout::kHeads);
  for (const int64_t i : {0, 1, 30, 31, 32, 63, 254, 255, 256, 257, 299}) {
    Problem one = all;
    one.T = 1;
    one.keys = i + 1;
    one.mask = Mask::kNone;
    Inputs<TypeParam> part = in;
    part.q.assign(in.q.begin() + i * all.D, in.q.begin() + (i + 1) * all.D);
    const Results<TypeParam> alone = run<TypeParam>(one, part, Layout::kHeads);
    const auto row = together.y.begin() + i * all.E;
    EXPECT_TRUE(same_bits(alone.y, std::vector<TypeParam>(row, row + all.E))) << i;
    EXPECT_EQ(alone.lse[0], together.lse[static_cast<size_t>(i)]) << i;
  }
}

TYPED_TEST(AttentionOf, SameForAllThreadCounts) {
  Problem p;
  p.B = 2;
  p.H = 2;
  p.T = p.keys = 266;
  p.D = p.E = 4;
  p.mask = Mask::kCausal;
  p.dropout_p = 0.1;
  const Inputs<TypeParam> in(p);
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] {
    const Results<TypeParam> r = run<TypeParam>(p, in, Layout::kRows);
    std::vector<float> all = r.lse;
    for (const std::vector<TypeParam>* part : {&r.y, &r.dq, &r.dk, &r.dv}) {
      all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  }));
}

}  // namespace
}  // namespace chargrad::kernels
