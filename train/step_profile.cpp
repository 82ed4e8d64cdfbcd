#include "train/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace chargrad::train {
namespace {

using Json = nlohmann::ordered_json;
using profile::Row;
using profile::Span;
using profile::Totals;

profile::Profiler::Names names_of(const nn::Module& model) {
  profile::Profiler::Names names;
  for (const auto& [name, module] : model.named_modules()) {
    if (!name.empty()) {
      names.emplace(module, name);
    }
  }
  return names;
}

// The part of a GPT or of a step that a scope belongs to, by the last word of its name; what is
// not found, as in other models, is a phase of its own.
std::string phase_of(const std::string& scope) {
  static const std::map<std::string, std::string> phases = {{"", "other"},
                                                            {"step", "other"},
                                                            {"backward", "other"},
                                                            {"wte", "embedding"},
                                                            {"wpe", "embedding"},
                                                            {"drop", "embedding"},
                                                            {"ln_1", "norm"},
                                                            {"ln_2", "norm"},
                                                            {"ln_f", "norm"},
                                                            {"c_attn", "qkv"},
                                                            {"attn", "attention"},
                                                            {"resid_dropout", "projection"},
                                                            {"mlp", "MLP"},
                                                            {"c_fc", "MLP"},
                                                            {"gelu", "MLP"},
                                                            {"dropout", "MLP"},
                                                            {"transformer", "embedding"},
                                                            {"lm_head", "head and loss"},
                                                            {"forward", "head and loss"}};
  const std::string last = scope.substr(scope.rfind('.') + 1);
  if (last == "c_proj") {
    return scope.find(".attn.") != std::string::npos ? "projection" : "MLP";
  }
  if (last.find_first_not_of("0123456789") == std::string::npos && !last.empty()) {
    return "residual";  // what a block does beside its layers
  }
  const auto found = phases.find(last);
  return found != phases.end() ? found->second : scope;
}

void add(Totals& sum, const Totals& x) {
  sum.calls += x.calls;
  sum.nanoseconds += x.nanoseconds;
  sum.bytes += x.bytes;
  sum.flops += x.flops;
}

Totals sum_of(const Totals& a, const Totals& b) {
  Totals sum = a;
  add(sum, b);
  return sum;
}

// Figures of one step, as text.
class PerStep {
 public:
  PerStep(int64_t steps, int64_t nanoseconds)
      : steps_(static_cast<double>(steps)), all_(static_cast<double>(nanoseconds)) {}

  std::string ms(const Totals& x) const {
    return fmt::format("{:.3f}", static_cast<double>(x.nanoseconds) * 1e-6 / steps_);
  }
  std::string calls(const Totals& x) const {
    return fmt::format("{:.6g}", static_cast<double>(x.calls) / steps_);
  }
  // "share %   GF/s   MiB".
  std::string rest(const Totals& x) const {
    const auto ns = static_cast<double>(x.nanoseconds);
    return fmt::format("{:>7} {:>8} {:>9}", fmt::format("{:.1f} %", all_ > 0 ? 100 * ns / all_ : 0),
                       x.flops > 0 && ns > 0 ? fmt::format("{:.1f}", x.flops / ns) : "-",
                       fmt::format("{:.2f}", static_cast<double>(x.bytes) / (1 << 20) / steps_));
  }

 private:
  double steps_;
  double all_;
};

std::string phase_table(const std::vector<Row>& rows, const PerStep& per_step) {
  std::string text = fmt::format("{:36} {:>10} {:>10} {:>7} {:>8} {:>9}\n", "phase", "forward ms",
                                 "backward", "share", "GF/s", "MiB");
  Totals forward, backward;
  const auto line = [&](const std::string& name, const Totals& a, const Totals& b) {
    text += fmt::format("{:36} {:>10} {:>10} {}\n", name, per_step.ms(a),
                        b.calls > 0 ? per_step.ms(b) : "-", per_step.rest(sum_of(a, b)));
  };
  for (const Phase& phase : phases_of(rows)) {
    line(phase.name, phase.forward, phase.backward);
    add(forward, phase.forward);
    add(backward, phase.backward);
  }
  line("all", forward, backward);
  return text;
}

std::string op_table(const std::vector<Row>& rows, const PerStep& per_step) {
  std::map<std::string, Totals> sums;
  for (const Row& row : rows) {
    const std::string op = row.op.empty() ? "(between ops)" : row.op;
    add(sums[op + (row.is_backward ? " backward" : "")], row.totals);
  }
  std::vector<std::pair<std::string, Totals>> ops(sums.begin(), sums.end());
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return a.second.nanoseconds > b.second.nanoseconds;
  });
  std::string text = fmt::format("{:46} {:>6} {:>10} {:>7} {:>8} {:>9}\n", "op", "calls", "ms",
                                 "share", "GF/s", "MiB");
  for (const auto& [name, totals] : ops) {
    text += fmt::format("{:46} {:>6} {:>10} {}\n", name, per_step.calls(totals),
                        per_step.ms(totals), per_step.rest(totals));
  }
  return text;
}

Json event_of(const Span& span) {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  Json event;
  event["name"] = std::string(span.name) + (span.is_backward ? " backward" : "");
  event["cat"] = span.is_scope ? "scope" : "op";
  event["ph"] = "X";
  event["ts"] = microseconds(span.begin);
  event["dur"] = microseconds(span.end - span.begin);
  event["pid"] = 1;
  event["tid"] = 1;
  if (!span.is_scope) {
    event["args"] = {{"scope", span.scope}, {"bytes", span.bytes}};
    if (span.flops > 0 && span.end > span.begin) {
      event["args"]["GF/s"] = span.flops / static_cast<double>(span.end - span.begin);
    }
  }
  return event;
}

}  // namespace

std::vector<Phase> phases_of(const std::vector<Row>& rows) {
  const std::vector<std::string> order = {"data",     "embedding", "norm",
                                          "qkv",      "attention", "projection",
                                          "residual", "MLP",       "head and loss"};
  std::vector<Phase> phases;
  phases.reserve(order.size());
  for (const std::string& name : order) {
    phases.push_back({name, {}, {}});
  }
  std::vector<Phase> last = {{"optimizer", {}, {}}, {"other", {}, {}}};
  const auto find = [&](const std::string& name) -> Phase& {
    for (std::vector<Phase>* const list : {&phases, &last}) {
      const auto found = std::find_if(list->begin(), list->end(),
                                      [&name](const Phase& phase) { return phase.name == name; });
      if (found != list->end()) {
        return *found;
      }
    }
    return phases.emplace_back(Phase{name, {}, {}});
  };
  for (const Row& row : rows) {
    Phase& phase = find(phase_of(row.scope));
    add(row.is_backward ? phase.backward : phase.forward, row.totals);
  }
  phases.insert(phases.end(), last.begin(), last.end());
  phases.erase(std::remove_if(phases.begin(), phases.end(),
                              [](const Phase& phase) {
                                return phase.forward.calls + phase.backward.calls == 0;
                              }),
               phases.end());
  return phases;
}

StepProfile::StepProfile(int64_t steps, const nn::Module& model)
    : steps_(steps), profiler_(names_of(model), kMostSpans) {}

profile::Profiler* StepProfile::next_step() {
  if (seen_++ < kWarmUp || done()) {
    return nullptr;
  }
  ++measured_;
  return &profiler_;
}

std::string StepProfile::text() const {
  const std::vector<Row> rows = profiler_.rows();
  const PerStep per_step(measured_, profiler_.nanoseconds());
  const double ms =
      static_cast<double>(profiler_.nanoseconds()) * 1e-6 / static_cast<double>(measured_);
  const std::string end = profiler_.spans().size() < kMostSpans
                              ? std::string()
                              : fmt::format("the trace ends after {} ops and scopes\n", kMostSpans);
  return fmt::format("profile of {} steps, {:.3f} ms each\n{}{}{}", measured_, ms,
                     phase_table(rows, per_step), op_table(rows, per_step), end);
}

std::string StepProfile::trace() const {
  Json events = Json::array();
  events.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"tid", 1},
                    {"args", {{"name", "training"}}}});
  for (const Span& span : profiler_.spans()) {
    events.push_back(event_of(span));
  }
  const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump() + "\n";
}

}  // namespace chargrad::train
