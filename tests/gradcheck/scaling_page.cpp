// The page of the experiment: charts as inline SVG, no script and nothing from a network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/gradcheck/scaling_report.h"

namespace chargrad::tests {
namespace {

constexpr double kWidth = 460, kHeight = 280;                       // of a chart
constexpr double kLeft = 62, kRight = 22, kTop = 12, kBottom = 42;  // its margins
constexpr const char* kRawColour = "#c2410c";                       // without the scale
constexpr const char* kScaledColour = "#0369a1";                    // with it

struct Point {
  double x, y;
};

// A curve over d_k; points at or below zero have no place on a log axis and are left out.
struct Curve {
  bool scaled;
  bool dashed;
  std::vector<Point> points;
};

using Value = std::function<double(const ScalingRow&)>;

Curve curve_of(const ScalingResult& result, bool scaled, bool dashed, const Value& value) {
  Curve curve{scaled, dashed, {}};
  for (const ScalingRow& row : result.rows) {
    if (row.scaled == scaled && value(row) > 0) {
      curve.points.push_back({static_cast<double>(row.d_k), value(row)});
    }
  }
  return curve;
}

std::string power_of_ten(int exponent) {
  return exponent >= -2 && exponent <= 2
             ? fmt::format("{:g}", std::pow(10, exponent))
             : fmt::format("10<tspan dy=\"-5\" font-size=\"9\">{}</tspan>", exponent);
}

// A chart with a log axis each way: the places of its points, its frame and its curves.
class LogChart {
 public:
  LogChart(double x_max, const std::vector<Curve>& curves) : curves_(curves) {
    x_high_ = std::max(1.0, std::log2(x_max));
    double low = 1e300, high = 1e-300;
    for (const Curve& curve : curves) {
      for (const Point& p : curve.points) {
        low = std::min(low, p.y);
        high = std::max(high, p.y);
      }
    }
    // Whole powers of ten, at most 16 of them: what is smaller lies below the frame.
    y_high_ = std::ceil(std::log10(std::max(high, 1e-300)) - 1e-9);
    y_low_ = std::max(std::floor(std::log10(std::min(low, high)) + 1e-9), y_high_ - 16);
    y_low_ = std::min(y_low_, y_high_ - 1);
  }

  std::string svg(const std::string& title) const {
    std::string text = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                                   kWidth, kHeight, title);
    text += grid();
    for (const Curve& curve : curves_) {
      text += line(curve);
    }
    return text + "</svg>\n";
  }

 private:
  double x(double d_k) const {
    return kLeft + std::log2(d_k) / x_high_ * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    const double share = (std::log10(value) - y_low_) / (y_high_ - y_low_);
    return kHeight - kBottom - std::max(share, 0.0) * (kHeight - kTop - kBottom);
  }

  std::string grid() const {
    std::string text;
    const int step = y_high_ - y_low_ > 8 ? 4 : y_high_ - y_low_ > 4 ? 2 : 1;
    for (int e = static_cast<int>(y_high_); e >= static_cast<int>(y_low_); e -= step) {
      const double at = y(std::pow(10, e));
      text += fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          kLeft, kWidth - kRight, at, at, kLeft - 6, at + 4, power_of_ten(e));
    }
    for (int e = 0; e <= static_cast<int>(x_high_ + 1e-9); e += x_high_ > 6 ? 2 : 1) {
      const double at = x(std::pow(2, e));
      text += fmt::format(
          "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>"
          "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
          at, at, kTop, kHeight - kBottom, at, kHeight - kBottom + 16, 1 << e);
    }
    return text + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">d_k</text>\n",
                              (kLeft + kWidth - kRight) / 2, kHeight - 8);
  }

  std::string line(const Curve& curve) const {
    std::string path, dots;
    const char* colour = curve.scaled ? kScaledColour : kRawColour;
    for (const Point& p : curve.points) {
      path += fmt::format("{:.1f},{:.1f} ", x(p.x), y(p.y));
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>", x(p.x),
                          y(p.y), colour);
    }
    return fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>{}\n", path,
        colour, curve.dashed ? " stroke-dasharray=\"5 4\"" : "", dots);
  }

  const std::vector<Curve>& curves_;
  double x_high_ = 1, y_low_ = 0, y_high_ = 1;
};

// A chart of one value, or of its mean (solid) and its median (dashed).
std::string chart(const ScalingResult& result, const std::string& title, const std::string& caption,
                  const Value& mean, const Value& median = {}) {
  std::vector<Curve> curves;
  for (const bool scaled : {false, true}) {
    curves.push_back(curve_of(result, scaled, /*dashed=*/false, mean));
    if (median) {
      curves.push_back(curve_of(result, scaled, /*dashed=*/true, median));
    }
  }
  const double x_max = static_cast<double>(result.rows.back().d_k);
  return fmt::format("<figure><figcaption><b>{}</b> {}</figcaption>\n{}</figure>\n", title, caption,
                     LogChart(x_max, curves).svg(title));
}

// One attention row as bars, largest first, on a linear axis from 0 to 1.
std::string weights_chart(const ScalingRow& row) {
  const char* colour = row.scaled ? kScaledColour : kRawColour;
  const double bottom = kHeight - kBottom, height = bottom - kTop;
  const double slot = (kWidth - kLeft - kRight) / static_cast<double>(row.first_weights.size());
  std::string svg;
  for (const double tick : {0.0, 0.5, 1.0}) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, kWidth - kRight, bottom - tick * height, bottom - tick * height, kLeft - 6,
        bottom - tick * height + 4, tick);
  }
  for (size_t i = 0; i < row.first_weights.size(); ++i) {
    const double bar = row.first_weights[i] * height;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
        kLeft + static_cast<double>(i) * slot + 0.1 * slot, bottom - bar, 0.8 * slot,
        std::max(bar, 0.5), colour);
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">keys, by weight</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 14);
  return fmt::format(
      "<figure><figcaption><b>{} the scale</b> largest weight {:.3f}</figcaption>\n"
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"weights\">\n{}</svg></figure>\n",
      row.scaled ? "With" : "Without", row.first_weights[0], kWidth, kHeight, svg);
}

std::string curves(const ScalingResult& r) {
  return chart(r, "Scores", "standard deviation of what the softmax is taken of",
               [](const auto& row) { return row.score_std; }) +
         chart(r, "Entropy", "of an attention row, in nats, mean",
               [](const auto& row) { return row.entropy_mean; }) +
         chart(
             r, "Softmax's Jacobian", "Frobenius norm; solid mean, dashed median",
             [](const auto& row) { return row.jacobian_norm.mean; },
             [](const auto& row) { return row.jacobian_norm.median; }) +
         chart(
             r, "Gradient of the scores", "norm; solid mean, dashed median",
             [](const auto& row) { return row.score_grad_norm.mean; },
             [](const auto& row) { return row.score_grad_norm.median; }) +
         chart(
             r, "Gradient that reaches a query", "norm; solid mean, dashed median",
             [](const auto& row) { return row.query_grad_norm.mean; },
             [](const auto& row) { return row.query_grad_norm.median; }) +
         chart(r, "Tokens that learn nothing",
               "share of weights below 10⁻⁶; no point where there are none",
               [](const auto& row) { return row.dead_share; });
}

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Why attention divides by √d_k</title>
<meta name="viewport" content="width=device-width">
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 1000px; margin: 2em auto;
       padding: 0 1em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 1.2em; }
figure { margin: 0; } figcaption { font-size: 14px; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #4b5563; }
.grid { stroke: #e5e7eb; } .key { font-weight: bold; }
</style></head><body>
)";

}  // namespace

std::string scaling_page(const ScalingResult& result) {
  const ScalingOptions& o = result.options;
  const ScalingRow &raw = result.rows[result.rows.size() - 2], &scaled = result.rows.back();
  std::string page = kHead;
  page += "<h1>Why attention divides by √d_k</h1>\n";
  page += fmt::format(
      "<p>{} queries for each d_k, {} keys each, all of unit variance (seed {}): "
      "<span class=\"key\" style=\"color:{}\">without</span> and "
      "<span class=\"key\" style=\"color:{}\">with</span> the scale 1/√d_k. Every gradient comes "
      "from autograd in float64 and was compared with finite differences in the same run: largest "
      "relative error {:.1e}.</p>\n",
      o.samples, o.keys, o.seed, kRawColour, kScaledColour, result.max_rel_error());
  page += "<div class=\"charts\">\n" + curves(result) + "</div>\n";
  page +=
      "<p>What vanishes without the scale is softmax's own derivative, for most rows: the median "
      "shows it, while a few rows whose two largest scores are close hold up the mean. The "
      "gradient that reaches queries and keys carries the factor 1/√d_k itself where the scores "
      "are scaled, so its mean is larger without the scale; its median still vanishes.</p>\n";
  page += fmt::format("<h2>One attention row, d_k = {}</h2>\n<div class=\"charts\">\n{}{}</div>\n",
                      raw.d_k, weights_chart(raw), weights_chart(scaled));
  page += fmt::format(
      "<h2>The smallest case</h2>\n<p>softmax(8, 0) = ({:.4f}, {:.4f}) has the derivative {:.4g}; "
      "softmax(8/√64, 0) = ({:.4f}, {:.4f}) has {:.4g}: {:.0f} times larger.</p>\n</body></html>\n",
      result.raw.weights[0], result.raw.weights[1], result.raw.derivative, result.scaled.weights[0],
      result.scaled.weights[1], result.scaled.derivative, result.ratio());
  return page;
}

}  // namespace chargrad::tests
