// to_string: tensors as PyTorch prints them.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "engine/ops.h"

namespace chargrad {
namespace {

constexpr int64_t kEdgeItems = 3;     // shown at either end of a summarised dim
constexpr int64_t kThreshold = 1000;  // elements above which dims are summarised
constexpr size_t kLineWidth = 80;

// The elements of one tensor as text: all written alike, as wide as the widest.
struct ElementTexts {
  std::vector<std::string> texts;  // in row-major order
  size_t width = 1;

  void append(std::string text, bool counts_for_width) {
    width = counts_for_width ? std::max(width, text.size()) : width;
    texts.push_back(std::move(text));
  }
};

// How floating numbers are written.
class FloatStyle {
 public:
  explicit FloatStyle(const std::vector<double>& values) {
    double largest = 0, smallest = INFINITY;
    for (const double value : values) {
      if (std::isfinite(value) && value != 0) {
        largest = std::max(largest, std::abs(value));
        smallest = std::min(smallest, std::abs(value));
        whole_ = whole_ && value == std::ceil(value);
      }
    }
    scientific_ =
        largest > 0 && (largest / smallest > 1000 || largest > 1e8 || (!whole_ && smallest < 1e-4));
  }

  std::string text(double value) const {
    if (!std::isfinite(value)) {
      return fmt::format("{}", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    }
    return scientific_ ? fmt::format("{:.4e}", value)
           : whole_    ? fmt::format("{:.0f}.", value)
                       : fmt::format("{:.4f}", value);
  }

 private:
  bool whole_ = true;  // without a fraction they print as "2."
  bool scientific_ = false;
};

ElementTexts element_texts(const Tensor& x) {
  ElementTexts elements;
  if (is_floating(x.dtype())) {
    const std::vector<double> values = x.to_vector<double>();
    const FloatStyle style(values);
    for (const double value : values) {
      elements.append(style.text(value), std::isfinite(value) && value != 0);
    }
  } else {
    for (const int64_t value : x.to_vector<int64_t>()) {
      const bool is_bool = x.dtype() == kBool;
      elements.append(is_bool ? (value != 0 ? "True" : "False") : fmt::format("{}", value), true);
    }
  }
  for (std::string& text : elements.texts) {
    text = fmt::format("{:>{}}", text, elements.width);
  }
  return elements;
}

// x without the indices that a summary leaves out.
Tensor edges(Tensor x) {
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    const int64_t n = x.size(dim);
    if (n > 2 * kEdgeItems) {
      x = cat({narrow(x, dim, 0, kEdgeItems), narrow(x, dim, n - kEdgeItems, kEdgeItems)}, dim);
    }
  }
  return x;
}

std::string joined(const std::vector<std::string>& parts, const std::string& separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

class Printer {
 public:
  Printer(const Tensor& shown, bool summarised, const Shape& full_shape)
      : shape_(shown.shape()),
        full_shape_(full_shape),
        summarised_(summarised),
        elements_(element_texts(shown)) {}

  std::string print(size_t indent) const {
    return shape_.empty() ? elements_.texts[0] : print_dim(0, 0, indent);
  }

 private:
  bool leaves_out(size_t dim) const { return summarised_ && full_shape_[dim] != shape_[dim]; }

  std::string print_dim(size_t dim, size_t at, size_t indent) const {
    const auto n = static_cast<size_t>(shape_[dim]);
    std::vector<std::string> parts;
    const bool last = dim + 1 == shape_.size();
    const size_t step = elements_.texts.size() / std::max<size_t>(1, outer_size(dim));
    for (size_t i = 0; i < n; ++i) {
      if (leaves_out(dim) && i == static_cast<size_t>(kEdgeItems)) {
        parts.emplace_back(last ? " ..." : "...");
      }
      parts.push_back(last ? elements_.texts[at + i]
                           : print_dim(dim + 1, at + i * step, indent + 1));
    }
    const std::string margin(indent + 1, ' ');
    if (!last) {
      return "[" + joined(parts, "," + std::string(shape_.size() - dim - 1, '\n') + margin) + "]";
    }
    return "[" + joined(lines(parts, indent), ",\n" + margin) + "]";
  }

  // Number of slices that the dims up to and including `dim` cut the tensor into.
  size_t outer_size(size_t dim) const {
    size_t n = 1;
    for (size_t i = 0; i <= dim; ++i) {
      n *= static_cast<size_t>(shape_[i]);
    }
    return n;
  }

  std::vector<std::string> lines(const std::vector<std::string>& elements, size_t indent) const {
    const size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
    const size_t per_line = std::max<size_t>(1, room / (elements_.width + 2));
    std::vector<std::string> result;
    for (size_t i = 0; i < elements.size(); i += per_line) {
      const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(i);
      const size_t count = std::min(per_line, elements.size() - i);
      result.push_back(joined({begin, begin + static_cast<std::ptrdiff_t>(count)}, ", "));
    }
    return result;
  }

  Shape shape_;
  Shape full_shape_;
  bool summarised_;
  ElementTexts elements_;
};

// "log_softmax" -> "LogSoftmaxBackward".
std::string backward_name(std::string_view op) {
  std::string name;
  bool start = true;
  for (const char c : op) {
    if (c != '_') {
      name += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    }
    start = c == '_';
  }
  return name + "Backward";
}

std::vector<std::string> suffixes(const Tensor& x) {
  std::vector<std::string> result;
  if (x.numel() == 0 && x.dim() != 1) {
    result.push_back(fmt::format("size=({})", fmt::join(x.shape(), ", ")));
  }
  if (x.dtype() == kFloat64 || x.dtype() == kBFloat16 ||
      (x.numel() == 0 && x.dtype() != kFloat32)) {
    result.push_back(fmt::format("dtype={}", dtype_name(x.dtype())));
  }
  if (!x.grad_fn_name().empty()) {
    result.push_back(fmt::format("grad_fn=<{}>", backward_name(x.grad_fn_name())));
  } else if (x.requires_grad()) {
    result.emplace_back("requires_grad=True");
  }
  return result;
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) {
    return "tensor(undefined)";
  }
  const std::string prefix = "tensor(";
  const NoGradGuard no_grad;
  const Tensor data = x.detach();
  std::string text = prefix;
  if (x.numel() == 0) {
    text += "[]";
  } else {
    const bool summarised = x.numel() > kThreshold;
    text += Printer(summarised ? edges(data) : data, summarised, x.shape()).print(prefix.size());
  }
  size_t line = text.size() - (text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  for (const std::string& suffix : suffixes(x)) {
    const bool fits = line + suffix.size() + 3 <= kLineWidth;
    text += fits ? ", " : ",\n" + std::string(prefix.size(), ' ');
    text += suffix;
    line = (fits ? line + 2 : prefix.size()) + suffix.size();
  }
  return text + ")";
}

}  // namespace chargrad
