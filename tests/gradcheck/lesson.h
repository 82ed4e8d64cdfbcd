// The lessons number by number: what they print, and what the engine makes of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace chargrad::tests {

// A number as a lesson prints it ("1.2544", "7.02e-13") and the engine's.
struct LessonNumber {
  std::string label;
  std::string printed;
  double engine = 0;
};

// Engine minus printed, in units of the last printed digit: fine within -1 .. 1.
double units_off(const LessonNumber& number);
bool is_off(const LessonNumber& number);

// What a lesson shows, in its order.
class LessonSheet {
 public:
  // A line of text that is compared with nothing.
  void note(const std::string& text);
  // Every element of x beside its printed form; the label gets the element's index. Throws unless
  // there are as many printed numbers as elements.
  void numbers(const std::string& label, const std::vector<std::string>& printed, const Tensor& x);
  void number(const std::string& label, const std::string& printed, double engine);
  // Something that a lesson says without a number.
  void claim(const std::string& text, bool holds);

  size_t compared() const { return compared_; }
  size_t off() const { return off_; }  // numbers off and claims that do not hold
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  size_t compared_ = 0;
  size_t off_ = 0;
};

struct Lesson {
  std::string name;  // what --lesson=NAME takes
  std::string title;
  std::function<void(LessonSheet&)> fill;
};

// All, from the plain average to several heads.
const std::vector<Lesson>& lessons();

// The lessons of one file each.
std::vector<Lesson> causal_lessons();     // average, head, multi_head
std::vector<Lesson> trainable_lessons();  // simplified, v1, v2, thermostat
std::vector<Lesson> batched_lessons();    // self_attention, failure_modes, exercises

}  // namespace chargrad::tests
