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

// The inputs of a problem, all of them float32 numbers.
struct Inputs {
  std::vector<double> q, k, v, dy, mask;

  explicit Inputs(const Problem& p)
      : q(draw(p.q_size(), 1, p.spread)),
        k(draw(p.k_size(), 2, p.spread)),
        v(draw(p.v_size(), 3, 1)),
        dy(draw(p.y_size(), 4, 1)),
        mask(draw({p.B, p.H, p.T, p.keys}, 5, 2)) {
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
    return to_double(random_values<float>(size.count(), seed, -spread, spread));
  }
};

template <class S>
struct Results {
  std::vector<S> y, dq, dk, dv;
  std::vector<Wide<S>> lse;
};

template <class S>
Results<S> run(const Problem& p, const Inputs& in, Layout layout) {
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

// Every result within `relative` of the largest of its kind, or of 0.01 where that is less (a
// gradient may cancel to nothing); one that is 1 % off is not.
template <class S>
void expect_near(const std::vector<S>& got, const std::vector<double>& want, double relative,
                 const std::string& what) {
  const double most = largest(want);
  const double tolerance = relative * std::max(most, 0.01);
  EXPECT_TRUE(near(got, want, tolerance, 0)) << what;
  if (most > 0.01) {
    std::vector<S> wrong = got;
    for (S& x : wrong) {
      x = S(static_cast<Wide<S>>(x) * Wide<S>(1.01));
    }
    EXPECT_FALSE(near(wrong, want, tolerance, 0)) << what;
  }
}

template <class S>
void expect_agrees(const Problem& p, Layout layout, double relative) {
  const Inputs in(p);
  const Results<S> got = run<S>(p, in, layout);
  const Results<double> want = run<double>(p, in, Layout::kHeads);
  const std::string what =
      testing::PrintToString(std::vector<int64_t>{p.B, p.H, p.T, p.keys, p.D, p.E}) + " layout " +
      std::to_string(static_cast<int>(layout)) + " mask " +
      std::to_string(static_cast<int>(p.mask)) + " dropout " + std::to_string(p.dropout_p);
  expect_near(got.y, want.y, relative, "y of " + what);
  expect_near(got.dq, want.dq, relative, "dq of " + what);
  expect_near(got.dk, want.dk, relative, "dk of " + what);
  expect_near(got.dv, want.dv, relative, "dv of " + what);
  // Scores of a few units and the logarithm of a sum, each rounded by 6e-8 of itself.
  EXPECT_TRUE(near(got.lse, want.lse, 3e-6, 0)) << what;
}

// A score has the error of D multiply-adds of numbers below 1, a few 1e-7 for D <= 70, and as much
// from its exponential; y averages numbers below 1. Gradients add up at most 600 products of
// numbers that have such errors, of either sign.
constexpr double kFloatTolerance = 1e-5;

TEST(Attention, AgreesWithDoubleAroundTheBlocks) {
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
      expect_agrees<float>(p, static_cast<Layout>(T % 3), kFloatTolerance);
    }
  }
}

TEST(Attention, AgreesWithDoubleOverSeveralBlocksOfKeys) {
  Problem p;
  p.T = 37;
  p.keys = 530;
  p.D = 7;
  p.E = 3;
  for (const double dropout_p : {0.0, 0.3}) {
    p.dropout_p = dropout_p;
    p.mask = Mask::kAdded;
    expect_agrees<float>(p, Layout::kRows, kFloatTolerance);
  }
  p.T = p.keys = 290;
  p.mask = Mask::kCausal;
  expect_agrees<float>(p, Layout::kHeads, kFloatTolerance);
  p.D = 70;
  p.E = 66;
  p.T = 20;
  p.mask = Mask::kNone;
  expect_agrees<float>(p, Layout::kColumns, kFloatTolerance);
}

TEST(Attention, CausalWithMoreKeysOrMoreQueries) {
  Problem p;
  p.D = 8;
  p.E = 4;
  p.mask = Mask::kCausal;
  for (const auto& [T, keys] : {std::pair<int64_t, int64_t>{3, 300}, {40, 7}, {300, 260}, {1, 9}}) {
    p.T = T;
    p.keys = keys;
    expect_agrees<float>(p, Layout::kRows, kFloatTolerance);
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
  const Inputs in(p);
  const Results<float> got = run<float>(p, in, Layout::kHeads);
  const Results<double> want = run<double>(p, in, Layout::kHeads);
  EXPECT_TRUE(near(got.y, want.y, 3e-5, 0));
  EXPECT_TRUE(near(got.dv, want.dv, 1e-4, 0));
  p.scale = -1;
  EXPECT_TRUE(
      near(run<float>(p, in, Layout::kHeads).y, run<double>(p, in, Layout::kHeads).y, 3e-5, 0));
}

TEST(Attention, ARowThatSeesNothing) {
  Problem p;
  p.H = 2;
  p.T = 3;
  p.keys = 5;
  p.D = 4;
  p.E = 2;
  p.mask = Mask::kAdded;
  const Results<float> results = run<float>(p, Inputs(p), Layout::kHeads);
  EXPECT_EQ(results.lse.back(), -kInf);
  EXPECT_EQ(std::vector<float>(results.y.end() - 2, results.y.end()), std::vector<float>(2, 0));
  EXPECT_EQ(std::vector<float>(results.dq.end() - 4, results.dq.end()), std::vector<float>(4, 0));
}

TEST(Attention, NothingToSeeAndNobodyToLook) {
  Problem p;
  p.T = 3;
  p.keys = 0;
  p.E = 2;
  const Results<float> no_keys = run<float>(p, Inputs(p), Layout::kHeads);
  EXPECT_EQ(no_keys.y, std::vector<float>(6, 0));
  EXPECT_EQ(no_keys.dq, std::vector<float>(3, 0));
  p.T = 0;
  p.keys = 3;
  const Results<float> no_rows = run<float>(p, Inputs(p), Layout::kHeads);
  EXPECT_EQ(no_rows.dk, std::vector<float>(3, 0));
  EXPECT_EQ(no_rows.dv, std::vector<float>(6, 0));
}

TEST(Attention, ANaNStaysInItsRow) {
  Problem p;
  p.T = 3;
  p.keys = 270;
  p.mask = Mask::kNone;
  Inputs in(p);
  in.q[1] = std::nan("");
  const Results<float> results = run<float>(p, in, Layout::kHeads);
  EXPECT_TRUE(std::isnan(results.y[1]));
  EXPECT_TRUE(std::isnan(results.lse[1]));
  EXPECT_TRUE(std::isfinite(results.y[0]) && std::isfinite(results.y[2]));
}

// The row that sees keys 0 .. i, computed alone over those keys, as decoding does.
TEST(Attention, ARowAloneHasTheSameBits) {
  Problem all;
  all.T = all.keys = 300;
  all.D = 24;
  all.E = 20;
  all.mask = Mask::kCausal;
  const Inputs in(all);
  const Results<float> together = run<float>(all, in, Layout::kHeads);
  for (const int64_t i : {0, 1, 30, 31, 32, 63, 254, 255, 256, 257, 299}) {
    Problem one = all;
    one.T = 1;
    one.keys = i + 1;
    one.mask = Mask::kNone;
    Inputs part = in;
    part.q.assign(in.q.begin() + i * all.D, in.q.begin() + (i + 1) * all.D);
    const Results<float> alone = run<float>(one, part, Layout::kHeads);
    const auto row = together.y.begin() + i * all.E;
    EXPECT_TRUE(same_bits(alone.y, std::vector<float>(row, row + all.E))) << i;
    EXPECT_EQ(alone.lse[0], together.lse[static_cast<size_t>(i)]) << i;
  }
}

TEST(Attention, SameForAllThreadCounts) {
  Problem p;
  p.B = 3;
  p.H = 2;
  p.T = p.keys = 266;
  p.D = p.E = 12;
  p.mask = Mask::kCausal;
  p.dropout_p = 0.1;
  const Inputs in(p);
  EXPECT_TRUE(same_for_all_thread_counts<float>([&] {
    const Results<float> r = run<float>(p, in, Layout::kRows);
    std::vector<float> all = r.y;
    for (const std::vector<float>* part : {&r.dq, &r.dk, &r.dv, &r.lse}) {
      all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  }));
}

}  // namespace
}  // namespace chargrad::kernels
