#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace chargrad::train {

// SHA-256 of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::string_view bytes);
  // The digest of everything so far in lower-case hexadecimal. Called once, last.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chargrad::train
