// scaled_dot_product_attention: known values, masks, lengths around a block, threads.
#include <cmath>
#include <limits>

#include "engine/autocast.h"
#include "engine/threads.h"
#include "tests/engine/ops/op_testing.h"

namespace chargrad {
namespace {

using testing::Each;
using tests::near;
using tests::throws;
using tests::values;

AttentionOptions causal() {
  AttentionOptions options;
  options.is_causal = true;
  return options;
}

TEST(Attention, ScaleIsOneOverTheRootOfTheKeysLength) {
  // q.k is 2 and 0; with values e_0 and e_1 the output is the weights.
  const Tensor q = tensor({{1, 1}}), k = tensor({{1, 1}, {0, 0}});
  EXPECT_THAT(values(scaled_dot_product_attention(q, k, eye(2))), near({0.8044, 0.1956}, 5e-5));
  AttentionOptions unscaled;
  unscaled.scale = 1.0;
  EXPECT_THAT(values(scaled_dot_product_attention(q, k, eye(2), unscaled)),
              near({0.8808, 0.1192}, 5e-5));
}

TEST(Attention, AFullyMaskedRowGivesZerosAndFiniteGradients) {
  const Tensor q = tensor({{1, 2}, {3, 4}}).set_requires_grad();
  AttentionOptions options;
  options.attn_mask = tensor({{1, 1}, {0, 0}}, kBool);
  options.scale = 1.0;
  const Tensor k = eye(2).set_requires_grad(), v = eye(2).set_requires_grad();
  const Tensor y = scaled_dot_product_attention(q, k, v, options);
  EXPECT_THAT(values(y), near({0.2689, 0.7311, 0, 0}, 5e-5));
  y.backward(tensor({{1, 2}, {3, 4}}));
  for (const Tensor& x : {q, k, v}) {
    for (const double g : values(x.grad())) {
      EXPECT_TRUE(std::isfinite(g));
    }
  }
  EXPECT_THAT(values(select(q.grad(), 0, 1)), Each(0));
}

TEST(Attention, MinusInfinityInAnAdditiveMaskIsABoolMask) {
  manual_seed(1);
  const Tensor q = randn({2, 3, 4}), k = randn({2, 5, 4}), v = randn({2, 5, 2});
  AttentionOptions by_bool, by_number;
  by_bool.attn_mask = tensor({1, 0, 1, 1, 0}, kBool);
  const double inf = std::numeric_limits<double>::infinity();
  by_number.attn_mask = tensor({0, -inf, 0, 0, -inf});
  EXPECT_EQ(values(scaled_dot_product_attention(q, k, v, by_bool)),
            values(scaled_dot_product_attention(q, k, v, by_number)));
}

TEST(Attention, CausalEqualsTheTriangularMaskAroundTheBlockLength) {
  manual_seed(1);
  for (const int64_t T : {1, 2, 63, 64, 65, 130}) {
    for (const int64_t keys : {T, T + 3, T > 5 ? T - 5 : 1}) {
      const auto run = [&](const AttentionOptions& options) {
        manual_seed(T);
        std::vector<Tensor> in{randn({2, T, 3}, kFloat64), randn({2, keys, 3}, kFloat64),
                               randn({2, keys, 2}, kFloat64)};
        for (Tensor& x : in) {
          x.set_requires_grad();
        }
        const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], options);
        y.backward(randn({2, T, 2}, kFloat64));
        return std::vector<std::vector<double>>{values(y), values(in[0].grad()),
                                                values(in[1].grad()), values(in[2].grad())};
      };
      AttentionOptions masked;
      masked.attn_mask = tril(ones({T, keys}, kBool));
      const auto want = run(masked), got = run(causal());
      for (size_t i = 0; i < want.size(); ++i) {
        // Sums of at most 130 products of normal numbers in double.
        EXPECT_THAT(got[i], near(want[i], 1e-12)) << "T " << T << " keys " << keys << " of " << i;
      }
    }
  }
}

TEST(Attention, LaterInputsLeaveEarlierRowsAlone) {
  manual_seed(1);
  const Tensor q = randn({1, 70, 4}), k = randn({1, 70, 4}), v = randn({1, 70, 4});
  const Tensor before = scaled_dot_product_attention(q, k, v, causal());
  fill_(narrow(k, 1, 66, 4), 9);
  fill_(narrow(v, 1, 66, 4), -9);
  const Tensor after = scaled_dot_product_attention(q, k, v, causal());
  EXPECT_EQ(values(narrow(before, 1, 0, 66)), values(narrow(after, 1, 0, 66)));
  EXPECT_NE(values(narrow(before, 1, 66, 4)), values(narrow(after, 1, 66, 4)));
}

TEST(Attention, LeadingDimsOfAnyNumber) {
  manual_seed(1);
  const Tensor q = randn({2, 3, 2, 5, 4}), k = randn({2, 3, 2, 6, 4}), v = randn({2, 3, 2, 6, 7});
  const Tensor y = scaled_dot_product_attention(q, k, v);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 2, 5, 7}));
  const auto one = [](const Tensor& x) { return select(select(select(x, 0, 1), 0, 2), 0, 0); };
  EXPECT_THAT(values(scaled_dot_product_attention(one(q), one(k), one(v))),
              near(values(one(y)), 1e-6));
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    manual_seed(1);
    std::vector<Tensor> in{randn({3, 2, 67, 5}), randn({3, 2, 67, 5}), randn({3, 2, 67, 5})};
    for (Tensor& x : in) {
      x.set_requires_grad();
    }
    AttentionOptions options = causal();
    options.dropout_p = 0.3;
    options.key = DropoutKey{1, 2};
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], options);
    y.backward(randn(y.shape()));
    results.push_back(values(
        cat({flatten(y), flatten(in[0].grad()), flatten(in[1].grad()), flatten(in[2].grad())})));
    EXPECT_EQ(results.back(), results.front()) << threads;
  }
  set_num_threads(0);
}

TEST(Attention, DropoutWithoutAKeyDrawsTheNextOne) {
  manual_seed(1);
  AttentionOptions options;
  options.dropout_p = 0.5;
  const Tensor x = randn({4, 8});
  const uint64_t before = default_generator().dropout_calls();
  const Tensor first = scaled_dot_product_attention(x, x, x, options);
  EXPECT_EQ(default_generator().dropout_calls(), before + 1);
  EXPECT_NE(values(first), values(scaled_dot_product_attention(x, x, x, options)));
  manual_seed(1);
  randn({4, 8});
  EXPECT_EQ(values(first), values(scaled_dot_product_attention(x, x, x, options)));
}

TEST(Attention, DroppingEverythingGivesZerosAndNoNaN) {
  AttentionOptions options;
  options.dropout_p = 1;
  const Tensor x = ones({3, 2}).set_requires_grad();
  const Tensor y = scaled_dot_product_attention(x, x, x, options);
  EXPECT_THAT(values(y), Each(0));
  sum(y).backward();
  EXPECT_THAT(values(x.grad()), Each(0));
}

TEST(Attention, LargeScoresStayFinite) {
  const Tensor q = full({1, 1}, 1000);
  const Tensor k = tensor({1, -1}).reshape({2, 1}), v = tensor({3, 4}).reshape({2, 1});
  EXPECT_EQ(scaled_dot_product_attention(q, k, v).item(), 3);
}

TEST(Attention, ANaNStaysInItsRow) {
  const Tensor q = tensor({{NAN, 0}, {1, 0}});
  const Tensor y = scaled_dot_product_attention(q, eye(2), eye(2));
  EXPECT_TRUE(std::isnan(y.item({0, 0})));
  EXPECT_FALSE(std::isnan(y.item({1, 0})));
}

TEST(Attention, AutocastGivesBFloat16NearTheFloat32Result) {
  manual_seed(1);
  const Tensor q = randn({5, 8}).set_requires_grad(), k = randn({5, 8}), v = randn({5, 8});
  const Tensor exact = scaled_dot_product_attention(q, k, v, causal());
  const AutocastGuard guard(kBFloat16);
  const Tensor y = scaled_dot_product_attention(q, k, v, causal());
  EXPECT_EQ(y.dtype(), kBFloat16);
  // Three roundings of 2^-9 relative, values and scores of a few units.
  EXPECT_THAT(values(y), near(values(exact), 0.05));
  sum(y.to(kFloat32)).backward();
  EXPECT_EQ(q.grad().dtype(), kFloat32);
}

TEST(Attention, TheResultLiesSoThatHeadsJoinWithoutACopy) {
  const Tensor x = randn({2, 3, 5, 4});
  const Tensor joined = scaled_dot_product_attention(x, x, x).transpose(1, 2);  // (B, T, H, E)
  EXPECT_TRUE(joined.is_contiguous());
}

TEST(AttentionPacked, GradientsGoWhereTheirInputsAre) {
  manual_seed(1);
  // One head and one position: y = v, whatever q and k are.
  const Tensor qkv = randn({1, 1, 6}).set_requires_grad();
  const Tensor y = scaled_dot_product_attention_packed(qkv, 1);
  EXPECT_EQ(values(y), values(narrow(qkv.detach(), 2, 4, 2)));
  y.backward(tensor({3, 4}).reshape({1, 1, 2}));
  EXPECT_EQ(values(qkv.grad()), (std::vector<double>{0, 0, 0, 0, 3, 4}));
}

TEST(AttentionPacked, AutocastGivesBFloat16) {
  manual_seed(1);
  const Tensor qkv = randn({2, 5, 24}).set_requires_grad();
  const Tensor exact = scaled_dot_product_attention_packed(qkv, 2, causal());
  const AutocastGuard guard(kBFloat16);
  const Tensor y = scaled_dot_product_attention_packed(qkv, 2, causal());
  EXPECT_EQ(y.dtype(), kBFloat16);
  // Three roundings of 2^-9 relative, values and scores of a few units.
  EXPECT_THAT(values(y), near(values(exact), 0.05));
  sum(y.to(kFloat32)).backward();
  EXPECT_EQ(qkv.grad().dtype(), kFloat32);
}

// The same kernels at other strides: not a bit differs, in either dtype.
TEST(AttentionPacked, EqualsTheOpOnHeadsBitForBit) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    manual_seed(1);
    const int64_t B = 2, T = 37, H = 3, D = 8;
    const Tensor qkv = randn({B, T, 3 * H * D}).to(dtype).set_requires_grad();
    const Tensor dy = randn({B, T, H * D}).to(dtype);
    AttentionOptions options = causal();
    options.dropout_p = 0.2;
    options.key = DropoutKey{1, 2};
    const auto heads = [&](int64_t i) {
      return reshape(narrow(qkv, 2, i * H * D, H * D), {B, T, H, D}).transpose(1, 2);
    };
    const Tensor y = scaled_dot_product_attention_packed(qkv, H, options);
    const Tensor apart = scaled_dot_product_attention(heads(0), heads(1), heads(2), options)
                             .transpose(1, 2)
                             .reshape({B, T, H * D});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(values(y), values(apart));
    EXPECT_EQ(values(grad({y}, {qkv}, {dy})[0]), values(grad({apart}, {qkv}, {dy})[0]));
  }
}

TEST(AttentionPacked, Refusals) {
  EXPECT_THAT(
      [] {
        scaled_dot_product_attention_packed(zeros({2, 3, 12}), 3);
      },
      throws("scaled_dot_product_attention_packed: qkv must be (B, T, 3 C) with C a multiple of "
             "n_head, got [2, 3, 12] and n_head 3"));
  EXPECT_THAT(
      [] {
        scaled_dot_product_attention_packed(zeros({3, 12}), 2);
      },
      throws("scaled_dot_product_attention_packed: qkv must be (B, T, 3 C) with C a "
             "multiple of n_head, got [3, 12] and n_head 2"));
  AttentionOptions options = causal();
  options.attn_mask = ones({3, 3}, kBool);
  EXPECT_THAT(
      [&] {
        scaled_dot_product_attention_packed(zeros({2, 3, 12}), 2, options);
      },
      throws("scaled_dot_product_attention_packed: is_causal and attn_mask exclude each "
             "other, got a mask of shape [3, 3]"));
}

TEST(Attention, Refusals) {
  const Tensor x = zeros({3, 2});
  EXPECT_THAT(
      [&] {
        scaled_dot_product_attention(x, zeros({3, 4}), x);
      },
      throws("scaled_dot_product_attention: shapes must be (..., T, D), (..., S, D), "
             "(..., S, E), got q [3, 2], k [3, 4] and v [3, 2]"));
  AttentionOptions both = causal();
  both.attn_mask = ones({3, 3}, kBool);
  EXPECT_THAT([&] { scaled_dot_product_attention(x, x, x, both); },
              throws("scaled_dot_product_attention: is_causal and attn_mask exclude each other, "
                     "got a mask of shape [3, 3]"));
  AttentionOptions options;
  options.dropout_p = 1.5;
  EXPECT_THAT([&] { scaled_dot_product_attention(x, x, x, options); },
              throws("scaled_dot_product_attention: dropout_p must be in [0, 1], got 1.5"));
  options = {};
  options.attn_mask = zeros({3}, kInt64);
  EXPECT_THAT([&] { scaled_dot_product_attention(x, x, x, options); },
              throws("scaled_dot_product_attention: attn_mask must be bool or floating, got "
                     "int64"));
  options.attn_mask = zeros({2, 3, 3});
  EXPECT_THAT([&] { scaled_dot_product_attention(x, x, x, options); },
              throws("scaled_dot_product_attention: attn_mask must broadcast to [3, 3], got "
                     "[2, 3, 3]"));
}

}  // namespace
}  // namespace chargrad
