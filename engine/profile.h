// Where the time of a program goes: ops, forward and backward, within named scopes. Nothing is
// measured unless a Recording is alive, and then only on its thread; without one a hook costs one
// branch.
//
// Time is cut without gaps: an op takes what passed since the op or scope border before it, so the
// rows of a Profiler add up to the time of its recordings, to the nanosecond. What no op accounts
// for (an optimizer, the drawing of data, the walk over the graph) is the row "" of its scope. An
// op that is made of others appears as those.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace chargrad {
class Tensor;
}

namespace chargrad::profile {

// What an op in the graph remembers for its backward.
struct Mark {
  int32_t scope = 0;
  double backward_flops = 0;
};

struct Totals {
  int64_t calls = 0;
  int64_t nanoseconds = 0;
  int64_t bytes = 0;  // handed out for tensors
  double flops = 0;   // of products; 0 for other ops
};

struct Row {
  std::string scope;  // the innermost; of a backward the one of its forward; "" outside of all
  std::string op;     // "" for what lies between ops
  bool is_backward = false;
  Totals totals;
};

// One stretch of time, for a trace. Scopes hold ops and scopes.
struct Span {
  std::string_view name;  // of an op, or of a scope
  std::string_view scope;
  bool is_scope = false;
  bool is_backward = false;
  int64_t begin = 0;  // nanoseconds since the profiler was made
  int64_t end = 0;
  int64_t bytes = 0;
  double flops = 0;
};

class Profiler {
 public:
  // Names of objects that open scopes, as modules do when they are called; unnamed ones open none.
  using Names = std::unordered_map<const void*, std::string>;
  // Keeps the first `most_spans` spans; rows count on.
  explicit Profiler(Names names = {}, size_t most_spans = 0);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Sorted by scope, op and direction.
  std::vector<Row> rows() const;
  // In the order of their ends. Their names live as long as this.
  const std::vector<Span>& spans() const { return spans_; }
  // Of all recordings together.
  int64_t nanoseconds() const { return recorded_; }

  // --- hooks, for the engine ---------------------------------------------------------------------
  void begin_recording();
  void end_recording();
  // A scope begins; false, and none does, within the backward of an op.
  bool enter(std::string_view scope);
  // False too for an object without a name.
  bool enter_object(const void* object);
  void leave();
  // An op has made y from inputs.
  Mark op(const char* name, const Tensor& y, const std::vector<Tensor>& inputs);
  // Until end_backward the ops that are called belong to that one.
  void begin_backward();
  void end_backward(const char* name, const Mark& mark);
  void allocated(int64_t bytes) { bytes_ += bytes; }

 private:
  struct Open {
    int32_t name;
    int64_t begin;
  };

  int32_t id_of(std::string_view name);
  int32_t scope() const { return open_.empty() ? 0 : open_.back().name; }
  int64_t now() const;
  // Gives the time and bytes since the last call to a row.
  void charge(int32_t scope, int32_t op, bool is_backward, double flops);
  void charge_gap() { charge(scope(), 0, false, 0); }
  void add_span(const Span& span);

  const std::chrono::steady_clock::time_point start_;
  const Names objects_;
  const size_t most_spans_;
  // Ids of names; 0 is "". Nodes of a map stay where they are, so views of their keys hold.
  std::map<std::string, int32_t, std::less<>> ids_;
  std::vector<std::string_view> names_;
  std::map<std::tuple<int32_t, int32_t, bool>, Totals> totals_;
  std::vector<Span> spans_;
  std::vector<Open> open_;
  int backward_depth_ = 0;
  int64_t last_ = 0;   // up to here all time is charged
  int64_t bytes_ = 0;  // not yet charged
  int64_t recorded_ = 0;
  int64_t recording_since_ = 0;
};

// Something that opens scopes by its address.
struct Object {
  const void* address;
};

// The profiler that records on this thread, or null.
inline constinit thread_local Profiler* current = nullptr;

// Makes `profiler` (which may be null: none) record on this thread while alive.
class Recording {
 public:
  explicit Recording(Profiler* profiler);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Profiler* const before_;
};

// A named scope while alive.
class Scope {
 public:
  explicit Scope(std::string_view name) {
    if (current != nullptr && current->enter(name)) {
      profiler_ = current;
    }
  }
  // Of an object that the profiler has a name for.
  explicit Scope(Object object) {
    if (current != nullptr && current->enter_object(object.address)) {
      profiler_ = current;
    }
  }
  ~Scope() {
    if (profiler_ != nullptr) {
      profiler_->leave();
    }
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Profiler* profiler_ = nullptr;
};

// The backward of one recorded op while alive.
class BackwardScope {
 public:
  BackwardScope(const char* op, const Mark& mark) : profiler_(current), op_(op), mark_(mark) {
    if (profiler_ != nullptr) {
      profiler_->begin_backward();
    }
  }
  ~BackwardScope() {
    if (profiler_ != nullptr) {
      profiler_->end_backward(op_, mark_);
    }
  }
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  Profiler* const profiler_;
  const char* const op_;
  const Mark mark_;
};

}  // namespace chargrad::profile
