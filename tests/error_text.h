// The text of the exception that an action throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace chargrad {

// Runs `action` and returns what() of the `Error` that it throws. Any other outcome fails the test
// and returns a text that no message equals.
template <class Error, class Action>
std::string error_text(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another type of exception: " << error.what();
    return "<another type>";
  }
  ADD_FAILURE() << "threw nothing";
  return "<nothing>";
}

}  // namespace chargrad
