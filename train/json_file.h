// The one reader of JSON: of small files that people, other programs or a crash wrote, and of the
// values in them. Whole, bounded, with errors that name the file and the key.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/setting.h"

namespace chargrad::train {

enum class Comments { kRefused, kAllowed };

// The value of a JSON text. `where` opens the message of the std::runtime_error for a syntax error,
// a key that an object gives twice, nesting beyond 64, more than 100,000 keys in one object or
// 1,200,000 values in all, or a number that no double holds.
Json parse_json(const std::string& text, const std::string& where,
                Comments comments = Comments::kRefused);

constexpr int64_t kLargestJsonFile = int64_t{16} << 20;  // bytes

// parse_json of a file of at most 16 MiB: a regular one, or, where comments are allowed and so a
// person wrote it, any.
Json read_json_file(const std::filesystem::path& path, Comments comments = Comments::kRefused);

// The members of one JSON object. Each getter throws std::runtime_error "WHERE: NAME is missing" or
// "WHERE: NAME must be ..., got ..."; members that nobody asks for are left alone.
class Members {
 public:
  // Throws unless it is an object. `where` opens the messages.
  Members(Json object, std::string where);
  // Of a file.
  static Members read(const std::filesystem::path& path);

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw std::runtime_error(
        fmt::format("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...)));
  }

  bool has(const char* name) const;
  const Json& at(const char* name) const;
  const Json& array(const char* name) const;
  Members object(const char* name) const;
  std::string text(const char* name) const;
  std::string choice(const char* name, const std::vector<std::string>& choices) const;
  bool boolean(const char* name) const;
  double real(const char* name, double low, double high) const;
  int64_t whole(const char* name, int64_t low, int64_t high) const;
  // Whole numbers, as one and as an array, in [low, high]. The second form takes any value that
  // belongs to `name`.
  int64_t whole(const char* name, const Json& value, int64_t low, int64_t high) const;
  std::vector<int64_t> wholes(const char* name, int64_t low, int64_t high) const;

  // Throws unless the member `version` is the whole number `supported`.
  void check_version(int64_t supported) const;

 private:
  const Json& checked(const char* name, bool (Json::*is_right)() const noexcept,
                      const char* type) const;

  Json object_;
  std::string where_;
};

}  // namespace chargrad::train
