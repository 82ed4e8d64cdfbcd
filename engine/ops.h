// THE MENU: every public op, grouped by family. Each entry says what it computes, the formula,
// the shapes, the gradient and what is saved for it, and PyTorch's name. The file
// engine/ops/<family>.cpp holds the op with its gradient.
//
// Rules for all: a dim may be negative, counted from the end; inputs may have any strides;
// elementwise ops broadcast as PyTorch's (sizes equal or 1, aligned at the last dim) and promote
// dtypes (bool < int64 < bfloat16 < float32 < float64); results are new and contiguous unless
// the entry says "a view". Arguments that break a rule throw std::invalid_argument, named op,
// rule and values. int64 and bool tensors have no gradient.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/autocast.h"
#include "engine/autograd.h"
#include "engine/generator.h"
#include "engine/tensor.h"

namespace chargrad {

// --- factories ----------------------------------------------------------------------------------

// Uninitialised, contiguous. Throws std::runtime_error, as every op that makes a tensor, when there
// is no memory for it. As torch.empty, torch.empty_like (but always contiguous).
Tensor empty(const Shape& shape, DType dtype = kFloat32);
Tensor empty_like(const Tensor& x);

// Every element 0, 1 or `value`. As torch.zeros, ones, full and their _like forms.
// Here and wherever a number becomes an int64 it loses its fraction; NaN and what int64 cannot
// hold are refused.
Tensor zeros(const Shape& shape, DType dtype = kFloat32);
Tensor ones(const Shape& shape, DType dtype = kFloat32);
Tensor full(const Shape& shape, double value, DType dtype = kFloat32);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);

// start, start + step, ... below end (above it for a negative step); the element i is
// start + i * step. As torch.arange; int64 unless a dtype is given.
Tensor arange(double end, DType dtype = kInt64);
Tensor arange(double start, double end, double step = 1, DType dtype = kInt64);

// Ones on the diagonal of an (n, m) matrix; m defaults to n. As torch.eye.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, DType dtype = kFloat32);

// A tensor of the listed numbers: tensor({1, 2, 3}) has shape [3], tensor({{1, 2}, {3, 4}})
// [2, 2], tensor({{1}, {2}}) [2, 1]; rows must be equally long. `scalar` makes a shape []. As
// torch.tensor. (A template only so that the other is preferred for rows of one number, which
// could be numbers as well.)
Tensor scalar(double value, DType dtype = kFloat32);
template <class = void>
Tensor tensor(std::initializer_list<double> values, DType dtype = kFloat32);
Tensor tensor(std::initializer_list<std::initializer_list<double>> rows, DType dtype = kFloat32);

// A tensor that holds a copy of `values` in row-major order; their number must fit the shape.
template <class S>
Tensor from_vector(const std::vector<S>& values, const Shape& shape);
template <class S>
Tensor from_vector(const std::vector<S>& values, const Shape& shape, DType dtype);

// --- random: PyTorch's CPU streams (engine/generator.h) -----------------------------------------

// Uniform in [0, 1); standard normal; integers in [low, high); a permutation of 0 .. n-1.
// As torch.rand, randn, randint, randperm, number for number.
Tensor rand(const Shape& shape, DType dtype = kFloat32, Generator& generator = default_generator());
Tensor randn(const Shape& shape, DType dtype = kFloat32,
             Generator& generator = default_generator());
Tensor randint(int64_t low, int64_t high, const Shape& shape,
               Generator& generator = default_generator());
Tensor randperm(int64_t n, Generator& generator = default_generator());

// 1 with the probability that `p` holds at the element, else 0; p in [0, 1], any floating dtype.
// As torch.bernoulli.
Tensor bernoulli(const Tensor& p, Generator& generator = default_generator());

// Indices drawn in proportion to the weights in the last dim of `p` (n) or (rows, n), which are
// finite, not negative and not all 0. -> int64 (num_samples) or (rows, num_samples).
// As torch.multinomial.
Tensor multinomial(const Tensor& p, int64_t num_samples, bool replacement = false,
                   Generator& generator = default_generator());

// --- in place -----------------------------------------------------------------------------------
// Each changes `x`, raises its version and returns it. Refused while gradients are recorded and
// x requires grad: wrap it in a NoGradGuard, or change x.detach(); and for an expanded x, whose
// elements share memory. Backward refuses a saved tensor that was changed.

Tensor fill_(const Tensor& x, double value);
Tensor zero_(const Tensor& x);
// x = source, broadcast and converted to x's dtype.
Tensor copy_(const Tensor& x, const Tensor& source);
// x += alpha * y; x *= value. y broadcasts to x.
Tensor add_(const Tensor& x, const Tensor& y, double alpha = 1);
Tensor mul_(const Tensor& x, double value);
// Random contents, as PyTorch's methods of these names.
Tensor uniform_(const Tensor& x, double from = 0, double to = 1,
                Generator& generator = default_generator());
Tensor normal_(const Tensor& x, double mean = 0, double std = 1,
               Generator& generator = default_generator());
Tensor bernoulli_(const Tensor& x, double p, Generator& generator = default_generator());
Tensor exponential_(const Tensor& x, double lambda = 1, Generator& generator = default_generator());

// --- elementwise --------------------------------------------------------------------------------

// a + b, a - b, a * b, a / b, broadcast. A number counts as a tensor of shape [] that does not
// promote within the same kind (float32 + 2.0 stays float32; int64 + 2.0 becomes float32).
// Division of integers gives float32.
//   da = dy, dy, dy * b, dy / b, summed over broadcast dims; db = dy, -dy, dy * a,
//   -dy * a / b^2; mul saves a and b, div too.
//   As torch.add, sub, mul, div.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor sub(double a, const Tensor& b);

// -x. dx = -dy. As torch.neg.
Tensor neg(const Tensor& x);

// x^exponent. dx = dy * exponent * x^(exponent - 1), 0 for exponent 0; saves x. As torch.pow.
Tensor pow(const Tensor& x, double exponent);

// e^x, natural logarithm, square root. dx = dy * y; dy / x; dy / (2 y). exp and sqrt save y, log
// saves x. Of integers and bools in float32. As torch.exp, log, sqrt.
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);

// |x|. dx = dy * sign(x), 0 at 0; saves x. As torch.abs.
Tensor abs(const Tensor& x);

// Hyperbolic tangent; 1 / (1 + e^-x); max(x, 0). dx = dy * (1 - y^2); dy * y * (1 - y);
// dy where y > 0. Each saves y. tanh and sigmoid of integers and bools in float32; relu of int64 is
// int64. As torch.tanh, sigmoid, relu.
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);

// x * Phi(x), Phi the normal distribution function: by erf (kNone), or in the tanh form
// x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) (kTanh).
//   dx = dy * (Phi(x) + x * phi(x)), or the derivative of the tanh form; saves that factor, or x
//   if it is large (is_recomputed).
//   As torch.nn.functional.gelu(x, approximate=...). Under autocast float32 gives bfloat16.
//   Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
enum class GeluApproximate { kNone, kTanh };
Tensor gelu(const Tensor& x, GeluApproximate approximate = GeluApproximate::kNone);

// linear(gelu(x), weight, bias); the gelu of a large x (least_recomputed) is made, used and dropped
// in parts, and is never whole in memory. Saves x and weight. dW = dy^T gelu(x), dx = dy W times
// gelu's slope, written over x where nobody else holds it and the graph is not retained; db as
// linear's.
Tensor gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                   GeluApproximate approximate = GeluApproximate::kNone);

// The larger or smaller of a and b, broadcast; a NaN wins. The gradient goes to the one chosen,
// half to each where they are equal; saves a and b. As torch.maximum, minimum.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

// a where `condition` (bool) holds, else b; all three broadcast. da = dy where it holds, else 0;
// db the reverse; saves condition. As torch.where.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// `value` where `mask` (bool, broadcast to x) holds, else x. dx = dy, 0 under the mask; saves
// mask. As torch.masked_fill.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

// min(max(x, low), high); either bound may be missing, not both. dx = dy where
// low <= x <= high, else 0; saves x. As torch.clamp.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);

// --- comparisons --------------------------------------------------------------------------------

// Bool, broadcast, without a gradient. As torch.eq, ne, lt, le, gt, ge.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);

// --- reductions ---------------------------------------------------------------------------------
//
// `dims` names the dims to reduce, none for all. The result drops them, or keeps them as 1 with
// keepdim. A dim named twice throws.

// Sum; integers and bools add up as int64. dx = dy, expanded. As torch.sum.
Tensor sum(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);

// Mean. dx = dy / n, expanded. As torch.mean.
Tensor mean(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);

// Variance: sum (x - mean)^2 / max(0, n - correction).
//   dx = dy * 2 (x - mean) / (n - correction); saves x. As torch.var.
Tensor var(const Tensor& x, const std::vector<int64_t>& dims = {}, int64_t correction = 1,
           bool keepdim = false);

// Largest and smallest value; a NaN wins. Equal extremes share the gradient evenly; saves x, y.
// As torch.amax, amin.
Tensor amax(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false);

// Largest or smallest value along `dim` and the int64 index of its first occurrence. The
// gradient goes to the chosen element; saves the indices. As torch.max(x, dim), min(x, dim).
struct ValuesAndIndices {
  Tensor values;
  Tensor indices;
};
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim = false);

// Index of the first largest element: along `dim`, or in the flattened tensor. As torch.argmax.
Tensor argmax(const Tensor& x);
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim = false);

// --- shape --------------------------------------------------------------------------------------

// The same elements, a view under another shape of equal numel; one size may be -1. Throws where
// the strides do not allow a view. dx = dy, reshaped. As Tensor.view.
Tensor view(const Tensor& x, const Shape& shape);

// As view, with a copy where the strides require one. As torch.reshape.
Tensor reshape(const Tensor& x, const Shape& shape);

// A view with two dims exchanged; with all dims in the given order. dx = dy with the dims put
// back. As torch.transpose, permute.
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const std::vector<int64_t>& dims);

// A view without the dims of size 1; without `dim` if its size is 1; with a new dim of size 1
// before `dim`. dx = dy, reshaped. As torch.squeeze, unsqueeze.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor unsqueeze(const Tensor& x, int64_t dim);

// A view in which dims of size 1 appear `shape` times (stride 0) and new dims stand in front;
// -1 keeps a size. dx = dy, summed over those dims. As Tensor.expand.
Tensor expand(const Tensor& x, const Shape& shape);

// A view of `length` indices of `dim` from `start`; of the indices start, start + step, ... below
// end (both clamped, negative ones counted from the end, step >= 1); of one index, without the
// dim. dx = zeros with dy in place. As torch.narrow, x[start:end:step], torch.select.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
Tensor select(const Tensor& x, int64_t dim, int64_t index);

// Tensors joined along an existing dim (equal sizes elsewhere), or along a new one (equal
// shapes). The gradients are the pieces of dy. As torch.cat, stack.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);

// Views of consecutive pieces of `split_size` (the last may be shorter), of the given sizes, or
// of at most `chunks` pieces of equal size. As torch.split, chunk.
std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);

// x itself if it is contiguous, else a contiguous copy; always a copy. dx = dy.
// As Tensor.contiguous, clone.
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);

// x in another dtype, x itself if it has it. bfloat16 rounds to nearest even, integers truncate
// (NaN and what int64 cannot hold become some int64). dx = dy in x's dtype. As Tensor.to.
Tensor to(const Tensor& x, DType dtype);

// Dims start .. end joined into one. As torch.flatten.
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);

// x on and below (above) the given diagonal of the last two dims, 0 elsewhere. dx likewise of dy.
// As torch.tril, triu.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// --- indexing -----------------------------------------------------------------------------------

// The slices of `dim` that the int64 `index` (n) names. dx = dy added up at those indices; saves
// index. As torch.index_select.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);

// y[i][j] = x[index[i][j]][j] for dim 0, and so on; index is int64 of x's rank and no larger
// than x outside dim. dx = dy added up at those places; saves index. As torch.gather.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);

// Rows of `weight` (V, C): ids (...) int64 in [0, V) -> (..., C).
//   dweight = dy added up by row, in a fixed order; saves ids and, to make itself again, weight.
//   As torch.nn.functional.embedding(ids, weight).
Tensor embedding(const Tensor& ids, const Tensor& weight);

// --- products and fused ops ---------------------------------------------------------------------

// Matrix product. (n) x (n) -> []; (m, k) x (k, n) -> (m, n); a vector counts as a row on the
// left, a column on the right; dims in front are batch dims and broadcast.
//   da = dy b^T, db = a^T dy, summed over broadcast batch dims; saves a and b.
//   As torch.matmul, for floating tensors only. Under autocast the operands are rounded to
//   bfloat16, the result too.
Tensor matmul(const Tensor& a, const Tensor& b);

// y = x W^T + b. x (..., in), weight (out, in), bias (out) or undefined -> (..., out).
//   dx = dy W, dW = dy^T x, db = sum of dy over rows; saves W, and x unless it is large and can be
//   made again (is_recomputed). As torch.nn.functional.linear. Autocast as matmul.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Exponentials along `dim`, scaled to sum to one.
//   y_i = exp(x_i - max x) / sum_j exp(x_j - max x)
//   x (..., n, ...) -> y, same shape.
//   dx = y * (dy - sum(y * dy, dim)); saves y.
//   As torch.softmax.
Tensor softmax(const Tensor& x, int64_t dim = -1);

// Logarithm of softmax: y_i = x_i - max x - log sum_j exp(x_j - max x).
//   dx = dy - exp(y) * sum(dy, dim); saves y. As torch.log_softmax.
Tensor log_softmax(const Tensor& x, int64_t dim = -1);

// Mean over the targets that are not ignore_index of -log softmax(logits)[target].
//   logits (..., V) floating, target (...) int64 in [0, V) or ignore_index -> [], float32 for
//   bfloat16 logits. NaN when every target is ignored; the gradient is then zero.
//   dlogits = dy * (softmax(logits) - onehot(target)) / count; saves logits, target and one
//   number a row.
//   As torch.nn.functional.cross_entropy, except that the classes are the last dim.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, int64_t ignore_index = -100);

// (x - mean) / sqrt(var + eps) over the last dim (biased variance), times weight, plus bias.
//   x (..., C), weight (C) and bias (C), each possibly undefined -> (..., C).
//   with h the normalised x and g = dy * weight: dx = (g - mean g - h * mean(g * h)) / std;
//   dweight = sum dy * h, dbias = sum dy; saves x (unless it is large and can be made again),
//   weight, bias, mean and 1/std.
//   As torch.nn.functional.layer_norm over the last dim. Under autocast float32 gives bfloat16.
//   Ba et al., "Layer Normalization", 2016.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

// x with each element zeroed with probability p in [0, 1] and the others times 1 / (1 - p); x
// itself where p is 0 or not training.
//   dx = dy under the same mask, drawn again from `key`; saves nothing.
//   As torch.nn.functional.dropout, but the masks are not PyTorch's: element i is decided by
//   Philox4x32-10 of the key at i. Without a key the default generator gives the next one.
Tensor dropout(const Tensor& x, double p, bool training = true, std::optional<DropoutKey> key = {});

// softmax(q k^T * scale + mask) v, in one pass.
//   q (..., T, D), k (..., S, D), v (..., S, E), equal leading dims -> (..., T, E), which lies in
//   memory as (B, T, H, E): y.transpose(1, 2).reshape({B, T, H * E}) is a view.
//   attn_mask broadcasts to (..., T, S): bool (true takes part) or floating (added to the
//   scores; it gets no gradient). is_causal lets row i see columns 0 .. i and excludes a mask.
//   dropout_p drops weights, by the key at the element's place in (..., T, S). A row that sees
//   no column gives zeros and no gradient. scale defaults to 1 / sqrt(D).
//   With P the weights: dv = P^T dy, dS = P * (dy v^T - sum(dy * y)), dq = scale dS k,
//   dk = scale dS^T q; saves q, k, v, y and one number a row.
//   As torch.nn.functional.scaled_dot_product_attention. Autocast as matmul.
struct AttentionOptions {
  Tensor attn_mask = {};
  double dropout_p = 0;
  bool is_causal = false;
  std::optional<double> scale = {};
  std::optional<DropoutKey> key = {};
};
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

// Self-attention of n_head heads on queries, keys and values that lie side by side, as one layer
// makes them; nothing is split, copied or put together.
//   q_h, k_h, v_h = columns [h D, (h + 1) D) of qkv's first, second and third C; D = C / n_head
//   y = cat over h of scaled_dot_product_attention(q_h, k_h, v_h)
//   qkv (B, T, 3 C) -> (B, T, C); attn_mask and the dropout key as above, for (B, n_head, T, T).
//   dqkv has dq, dk and dv in the same places; saves qkv, y and one number a row and head.
//   As nanoGPT's CausalSelfAttention between c_attn and c_proj. Autocast as matmul.
Tensor scaled_dot_product_attention_packed(const Tensor& qkv, int64_t n_head,
                                           const AttentionOptions& options = {});

// --- operators: the elementwise ops above -------------------------------------------------------
inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator+(const Tensor& a, double b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, double b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, double b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, double b) {
  return div(a, b);
}
inline Tensor operator+(double a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator*(double a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator-(double a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator-(const Tensor& a) {
  return neg(a);
}

}  // namespace chargrad
