#include "engine/kernels/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "engine/kernels/random_ref.h"

namespace chargrad::kernels {
namespace {

// Elements drawn, then worked on, at a time: the raw words and their results stay in the first
// cache. A multiple of kNormalBlock.
constexpr int64_t kChunk = 1024;

// Ranges from here on take a 64-bit draw.
constexpr uint64_t kWideRange = uint64_t{1} << 28;
// For permutations from this length on, 32 random bits are too few.
constexpr int64_t kLongPermutation = (int64_t{1} << 32) / 20;

double next53(RandomStream& stream) {
  return ref::uniform53(stream.bits.next64());
}

// Plain uniforms in [0, 1); n <= kChunk.
void draw_uniform(RandomStream& stream, float* y, int64_t n) {
  uint32_t words[kChunk];
  stream.bits.fill(words, n);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = ref::uniform24(words[i]);
  }
}
void draw_uniform(RandomStream& stream, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = next53(stream);
  }
}

double next_normal(RandomStream& stream) {
  if (stream.cached_normal) {
    const double value = *stream.cached_normal;
    stream.cached_normal.reset();
    return value;
  }
  const double u1 = next53(stream);
  const double u2 = next53(stream);
  const double radius = std::sqrt(-2 * std::log1p(-u2));
  const double theta = 2 * std::numbers::pi * u1;
  stream.cached_normal = radius * std::sin(theta);
  return radius * std::cos(theta);
}

// The columns of the `samples` largest scores, largest first, equal ones in column order.
template <class S>
void largest(const S* score, int64_t cols, int64_t* y, int64_t samples) {
  if (samples == 1) {
    y[0] = std::max_element(score, score + cols) - score;  // The first of equal ones.
    return;
  }
  std::vector<int64_t> order(static_cast<size_t>(cols));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + samples, order.end(), [&](int64_t a, int64_t b) {
    return score[a] > score[b] || (score[a] == score[b] && a < b);
  });
  std::copy_n(order.begin(), samples, y);
}

template <class S>
void cumulative(const S* p, S* sums, int64_t cols) {
  S sum = 0;
  for (int64_t j = 0; j < cols; ++j) {
    sum += p[j];
    sums[j] = sum;
  }
  for (int64_t j = 0; j < cols; ++j) {
    sums[j] /= sum;
  }
  sums[cols - 1] = 1;
}

}  // namespace

template <class S>
void uniform(RandomStream& stream, S* y, int64_t n, double from, double to) {
  const S low = static_cast<S>(from);
  const S scale = static_cast<S>(to) - low;
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    draw_uniform(stream, y + i, count);
    if (low != 0 || scale != 1) {
      scale_shift(y + i, count, scale, low);
    }
  }
}

template <class S>
void normal(RandomStream& stream, S* y, int64_t n, double mean, double std) {
  if (n < kNormalBlock) {
    normal_serial(stream, y, n, mean, std);
    return;
  }
  const S center = static_cast<S>(mean), width = static_cast<S>(std);
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    draw_uniform(stream, y + i, count);
    normal_blocks(y + i, count / kNormalBlock, center, width);
  }
  if (n % kNormalBlock != 0) {
    S* last = y + n - kNormalBlock;
    draw_uniform(stream, last, kNormalBlock);
    normal_blocks(last, 1, center, width);
  }
}

template <class S>
void normal_serial(RandomStream& stream, S* y, int64_t n, double mean, double std) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<S>(std::fma(next_normal(stream), std, mean));
  }
}

void integers(RandomStream& stream, int64_t* y, int64_t n, int64_t low, uint64_t range) {
  const bool wide = range >= kWideRange;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t draw = wide ? stream.bits.next64() : stream.bits.next32();
    y[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + draw % range);
  }
}

void permutation(RandomStream& stream, int64_t* y, int64_t n) {
  if (n >= kLongPermutation) {
    permutation_inside_out(stream, y, n);
    return;
  }
  std::iota(y, y + n, int64_t{0});
  for (int64_t i = 0; i + 1 < n; ++i) {
    std::swap(y[i], y[i + stream.bits.next32() % (n - i)]);
  }
}

void permutation_inside_out(RandomStream& stream, int64_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto place = static_cast<int64_t>(stream.bits.next64() % static_cast<uint64_t>(i + 1));
    y[i] = i;
    std::swap(y[i], y[place]);
  }
}

template <class S>
void bernoulli(RandomStream& stream, S* y, int64_t n, double p) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = next53(stream) < p ? S{1} : S{0};
  }
}

template <class S>
void bernoulli(RandomStream& stream, const S* p, S* y, int64_t n) {
  S u[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    draw_uniform(stream, u, count);
    for (int64_t k = 0; k < count; ++k) {
      y[i + k] = u[k] < p[i + k] ? S{1} : S{0};
    }
  }
}

template <class S>
void exponential(RandomStream& stream, S* y, int64_t n, double lambda) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<S>(-1 / lambda * std::log1p(-next53(stream)));
  }
}

template <class S>
void multinomial(RandomStream& stream, const S* p, int64_t* y, int64_t rows, int64_t cols,
                 int64_t samples, bool replacement) {
  std::vector<S> scratch(static_cast<size_t>(cols));
  S* work = scratch.data();
  for (int64_t i = 0; i < rows; ++i, p += cols, y += samples) {
    if (!replacement || samples == 1) {
      exponential(stream, work, cols, 1.0);
      for (int64_t j = 0; j < cols; ++j) {
        work[j] = p[j] > 0 ? p[j] / work[j] : S{0};  // 0 / 0 would be the largest.
      }
      largest(work, cols, y, samples);
      continue;
    }
    cumulative(p, work, cols);
    for (int64_t k = 0; k < samples; ++k) {
      y[k] = std::lower_bound(work, work + cols, next53(stream)) - work;
    }
  }
}

template void uniform(RandomStream&, float*, int64_t, double, double);
template void normal(RandomStream&, float*, int64_t, double, double);
template void normal_serial(RandomStream&, float*, int64_t, double, double);
template void bernoulli(RandomStream&, float*, int64_t, double);
template void bernoulli(RandomStream&, const float*, float*, int64_t);
template void exponential(RandomStream&, float*, int64_t, double);
template void multinomial(RandomStream&, const float*, int64_t*, int64_t, int64_t, int64_t, bool);
template void uniform(RandomStream&, double*, int64_t, double, double);
template void normal(RandomStream&, double*, int64_t, double, double);
template void normal_serial(RandomStream&, double*, int64_t, double, double);
template void bernoulli(RandomStream&, double*, int64_t, double);
template void bernoulli(RandomStream&, const double*, double*, int64_t);
template void exponential(RandomStream&, double*, int64_t, double);
template void multinomial(RandomStream&, const double*, int64_t*, int64_t, int64_t, int64_t, bool);

}  // namespace chargrad::kernels
