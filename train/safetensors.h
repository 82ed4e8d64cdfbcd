// Files of named tensors in the safetensors format: 8 bytes of header length, a JSON header, the
// data in order. Written as the reference writer does (larger dtypes first, then by name; header
// padded to 8 bytes), read as strictly as its reader does; duplicate keys and headers above 16 MiB
// are refused too. https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "nn/module.h"

namespace chargrad::train {

using Metadata = std::map<std::string, std::string>;

struct Safetensors {
  nn::NamedTensors tensors;  // in the file's order
  Metadata metadata;
};

// Writes a new file and waits until it is on the disk. Names must differ.
void write_safetensors(const std::filesystem::path& path, const nn::NamedTensors& tensors,
                       const Metadata& metadata = {});

// Throws std::runtime_error "PATH: what is wrong" for anything that is no such file, or holds a
// dtype other than F64, F32, BF16, I64 and BOOL. `check`, where there is one, gets the number of
// elements that the header describes and may throw; only then is memory taken for them.
Safetensors read_safetensors(const std::filesystem::path& path,
                             const std::function<void(int64_t)>& check = {});

}  // namespace chargrad::train
