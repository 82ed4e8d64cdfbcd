// Decoders give what the model gives for the whole context, bit for bit, however the ids come.
#include "models/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops.h"
#include "models/bigram.h"
#include "models/gpt.h"
#include "models/head_lm.h"
#include "tests/error_text.h"

namespace chargrad {
namespace {

constexpr int64_t kVocabulary = 11;

GPTConfig config(int64_t block_size, int64_t n_layer, int64_t n_head, int64_t n_embd, bool bias) {
  return {block_size, kVocabulary, n_layer, n_head, n_embd, /*dropout=*/0, bias};
}

Tensor last_block(const LanguageModel& model, const Tensor& ids) {
  const int64_t length = std::min(ids.size(1), model.block_size());
  return narrow(ids, 1, ids.size(1) - length, length);
}

// Feeds ids (B, T) in pieces of the given lengths, the rest one by one, and compares with the
// model without a memory after each.
void expect_equal_decoding(const LanguageModel& model, const Tensor& ids,
                           const std::vector<int64_t>& pieces) {
  const NoGradGuard no_grad;
  const std::unique_ptr<Decoder> decoder = model.decoder(ids.size(0));
  for (int64_t at = 0, piece = 0; at < ids.size(1); ++piece) {
    const int64_t count = piece < std::ssize(pieces) ? pieces[static_cast<size_t>(piece)] : 1;
    const Tensor y = decoder->append(narrow(ids, 1, at, count));
    at += count;
    const Tensor whole = model.next_logits(last_block(model, narrow(ids, 1, 0, at)));
    ASSERT_EQ(y.dtype(), whole.dtype());
    ASSERT_EQ(y.shape(), whole.shape());
    ASSERT_EQ(y.to_vector<double>(), whole.to_vector<double>()) << "after " << at << " ids";
  }
}

TEST(Decoder, EqualsTheModelWithinTheBlockAndBeyond) {
  manual_seed(1);
  const Tensor ids = randint(0, kVocabulary, {2, 33});
  for (const GPTConfig& c : {config(8, 1, 2, 8, false), config(8, 3, 2, 12, true),
                             config(8, 2, 1, 7, true), config(1, 2, 2, 8, false)}) {
    GPT gpt(c, default_generator(), GPT::Init::kDefault);
    for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
      gpt.to(dtype == kFloat64 ? kFloat64 : kFloat32);
      const AutocastGuard autocast(dtype);
      for (const int64_t prompt : {1, 3, 8, 9, 20}) {
        expect_equal_decoding(gpt, ids, {prompt});
      }
      expect_equal_decoding(gpt, ids, {2, 1, 3, 1, 1, 7, 1, 16});
    }
  }
}

// Wide enough for every loop of the kernels, long enough for a second block of attention's rows.
TEST(Decoder, EqualsTheModelAtUsualWidths) {
  manual_seed(2);
  GPT gpt(config(80, 2, 3, 96, false));
  const Tensor ids = randint(0, kVocabulary, {1, 84});
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const AutocastGuard autocast(dtype);
    expect_equal_decoding(gpt, ids, {60, 1, 1, 1, 1, 1, 1, 10});
  }
}

TEST(Decoder, OtherModelsEqualThemselves) {
  manual_seed(3);
  const Tensor ids = randint(0, kVocabulary, {2, 20});
  expect_equal_decoding(BigramLM(kVocabulary, 4), ids, {3});
  expect_equal_decoding(HeadLM(kVocabulary, 8, 8, 6), ids, {2});
}

TEST(Decoder, RowsOfABatchAreAsAlone) {
  manual_seed(4);
  const GPT gpt(config(8, 2, 2, 16, false), default_generator(), GPT::Init::kDefault);
  const Tensor ids = randint(0, kVocabulary, {5, 14});
  const auto together = gpt.decoder(5);
  std::vector<std::unique_ptr<Decoder>> alone;
  alone.reserve(5);
  for (int i = 0; i < 5; ++i) {
    alone.push_back(gpt.decoder(1));
  }
  for (int64_t t = 0; t < ids.size(1); ++t) {
    const Tensor y = together->append(narrow(ids, 1, t, 1));
    for (int64_t i = 0; i < 5; ++i) {
      const Tensor one =
          alone[static_cast<size_t>(i)]->append(narrow(narrow(ids, 1, t, 1), 0, i, 1));
      EXPECT_EQ(narrow(y, 0, i, 1).to_vector<float>(), one.to_vector<float>()) << t << ' ' << i;
    }
  }
}

TEST(Decoder, KeepsTheAutocastOfItsBeginning) {
  manual_seed(5);
  const GPT gpt(config(8, 1, 2, 8, false), default_generator(), GPT::Init::kDefault);
  const Tensor ids = randint(0, kVocabulary, {1, 5});
  const auto exact = gpt.decoder(1);
  const AutocastGuard autocast(kBFloat16);
  EXPECT_EQ(exact->append(ids).dtype(), kFloat32);
  EXPECT_EQ(gpt.decoder(1)->append(ids).dtype(), kBFloat16);
}

TEST(Decoder, RefusesWeightsThatChanged) {
  manual_seed(6);
  const GPT gpt(config(8, 1, 2, 8, false));
  const auto decoder = gpt.decoder(1);
  const Tensor id = zeros({1, 1}, kInt64);
  decoder->append(id);
  {
    const NoGradGuard no_grad;
    mul_(gpt.transformer.h[0].attn.c_attn.weight, 2);
  }
  EXPECT_EQ(error_text<std::invalid_argument>([&] { decoder->append(id); }),
            "Decoder: the model's weights were changed since it was made");
  EXPECT_NO_THROW(gpt.decoder(1)->append(id));
}

TEST(Decoder, RefusesIdsOfAnotherShape) {
  manual_seed(7);
  const GPT gpt(config(8, 1, 2, 8, false));
  const auto decoder = gpt.decoder(2);
  const auto try_it = [&](const Tensor& ids) {
    return error_text<std::invalid_argument>([&] { decoder->append(ids); });
  };
  EXPECT_EQ(try_it(zeros({1, 3}, kInt64)),
            "Decoder: ids must be int64 of shape [2, T] with T >= 1, got int64 of shape [1, 3]");
  EXPECT_THAT(try_it(zeros({2, 0}, kInt64)), testing::HasSubstr("got int64 of shape [2, 0]"));
  EXPECT_THAT(try_it(zeros({2, 1})), testing::HasSubstr("got float32 of shape [2, 1]"));
}

// The keys of an id that was refused are missing; the next call must not count on them.
TEST(Decoder, GoesOnAfterAnError) {
  manual_seed(8);
  const GPT gpt(config(8, 2, 2, 8, false), default_generator(), GPT::Init::kDefault);
  const auto decoder = gpt.decoder(1);
  decoder->append(tensor({{1, 2}}, kInt64));
  EXPECT_THAT(error_text<std::invalid_argument>([&] {
                decoder->append(full({1, 1}, kVocabulary, kInt64));
              }),
              testing::HasSubstr("embedding: id 11"));
  decoder->append(tensor({{3, 4, 5, 6, 7, 8, 9, 10}}, kInt64));
  const Tensor y = decoder->append(zeros({1, 1}, kInt64));
  const NoGradGuard no_grad;
  EXPECT_EQ(y.to_vector<float>(),
            gpt.next_logits(tensor({{4, 5, 6, 7, 8, 9, 10, 0}}, kInt64)).to_vector<float>());
}

TEST(Decoder, DropoutInTrainingModeIsTheModels) {
  manual_seed(9);
  GPTConfig c = config(8, 1, 2, 8, false);
  c.dropout = 0.5;
  GPT gpt(c, default_generator(), GPT::Init::kDefault);
  const Tensor ids = tensor({{1, 2, 3}}, kInt64);
  const NoGradGuard no_grad;
  const uint64_t calls = default_generator().dropout_calls();
  const std::vector<float> dropped = gpt.decoder(1)->append(ids).to_vector<float>();
  default_generator().set_dropout_calls(calls);
  EXPECT_EQ(dropped, gpt.next_logits(ids).to_vector<float>());
  gpt.eval();
  EXPECT_EQ(gpt.decoder(1)->append(ids).to_vector<float>(),
            gpt.next_logits(ids).to_vector<float>());
  EXPECT_NE(dropped, gpt.next_logits(ids).to_vector<float>());
}

}  // namespace
}  // namespace chargrad
