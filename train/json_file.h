// Reading of small files that people or other programs wrote: whole, bounded, with clear errors.
#pragma once

#include <cstdint>
#include <string>

#include "train/setting.h"

namespace chargrad::train {

enum class Comments { kRefused, kAllowed };

// The bytes of a file or pipe. Throws std::runtime_error with the path and the system's reason, or
// when there are more than `max_bytes`.
std::string read_whole_file(const std::string& path, int64_t max_bytes);

// The value of a JSON text. `where` opens the message of the std::runtime_error for a syntax error,
// a key that stands twice in one object, nesting beyond 64, or a number that no double holds.
Json parse_json(const std::string& text, const std::string& where,
                Comments comments = Comments::kRefused);

// parse_json of a file of at most 16 MiB.
Json read_json_file(const std::string& path, Comments comments = Comments::kRefused);

}  // namespace chargrad::train
