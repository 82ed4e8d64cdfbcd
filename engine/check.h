// Argument checks. User errors throw std::invalid_argument with a message of the form
// "op: rule that was broken, got values"; a DCHECK guards our own bugs in debug builds.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>

namespace chargrad {

namespace detail {

template <class... Parts>
[[noreturn]] void fail_check(const Parts&... parts) {
  std::string message;
  (message.append(fmt::format("{}", parts)), ...);
  throw std::invalid_argument(message);
}

}  // namespace detail

}  // namespace chargrad

// Throws std::invalid_argument with the parts joined unless `cond` holds. A shape prints as
// [2, 3]; the parts are evaluated only on failure.
#define CHARGRAD_CHECK(cond, ...)                  \
  do {                                             \
    if (!(cond)) {                                 \
      ::chargrad::detail::fail_check(__VA_ARGS__); \
    }                                              \
  } while (false)

// As CHARGRAD_CHECK in debug builds, nothing otherwise. Never for user input.
#ifdef NDEBUG
#define CHARGRAD_DCHECK(cond, ...) static_cast<void>(0)
#else
#define CHARGRAD_DCHECK(cond, ...) CHARGRAD_CHECK(cond, __VA_ARGS__)
#endif
