#include "train/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "engine/ops.h"
#include "train/files.h"
#include "train/json_file.h"

namespace chargrad::train {
namespace {

// The reference takes 100 MB; no model here needs a tenth, and what is read takes several times
// that.
constexpr int64_t kMaxHeader = int64_t{16} << 20;
constexpr int64_t kAlignment = 8;

// The format's names, in its order of alignment from high to low.
struct NamedDType {
  const char* name;
  DType dtype;
};
constexpr std::array<NamedDType, 5> kDTypes{{{"I64", DType::kInt64},
                                             {"F64", DType::kFloat64},
                                             {"F32", DType::kFloat32},
                                             {"BF16", DType::kBFloat16},
                                             {"BOOL", DType::kBool}}};

size_t rank_of(DType dtype) {
  size_t i = 0;
  while (kDTypes[i].dtype != dtype) {
    ++i;
  }
  return i;
}

std::optional<DType> dtype_named(const std::string& name) {
  for (const NamedDType& entry : kDTypes) {
    if (name == entry.name) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

int64_t bytes_of(const Tensor& x) {
  return x.numel() * dtype_size(x.dtype());
}

nn::NamedTensors in_file_order(nn::NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const size_t rank_a = rank_of(a.second.dtype()), rank_b = rank_of(b.second.dtype());
    return rank_a != rank_b ? rank_a < rank_b : a.first < b.first;
  });
  return tensors;
}

std::string header_text(const nn::NamedTensors& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  int64_t offset = 0;
  for (const auto& [name, x] : tensors) {
    CHARGRAD_CHECK(!header.contains(name), "safetensors: the name ", name, " appears twice");
    Json entry = Json::object();
    entry["dtype"] = kDTypes[rank_of(x.dtype())].name;
    entry["shape"] = x.shape();
    entry["data_offsets"] = {offset, offset + bytes_of(x)};
    header[name] = entry;
    offset += bytes_of(x);
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

// One tensor as the header describes it.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t begin;
  int64_t end;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), file_(path) {}

  Safetensors read(const std::function<void(int64_t)>& check) {
    const Json header = read_header();
    Safetensors result;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        result.metadata = read_metadata(value);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    check_offsets(entries);
    int64_t elements = 0;  // each takes a byte of the file
    for (const Entry& entry : entries) {
      elements += (entry.end - entry.begin) / dtype_size(entry.dtype);
    }
    if (check) {
      check(elements);
    }
    for (const Entry& entry : entries) {
      Tensor x = empty(entry.shape, entry.dtype);
      file_.read(data_begin_ + entry.begin, x.raw_data(),
                 static_cast<size_t>(entry.end - entry.begin));
      check_bools(entry, x);
      result.tensors.emplace_back(entry.name, x);
    }
    return result;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw std::runtime_error(
        fmt::format("{}: {}", shown_path(path_), fmt::format(format, std::forward<Args>(args)...)));
  }

  Json read_header() {
    if (file_.size() < 8) {
      fail("not a safetensors file: {} bytes, the header length alone takes 8", file_.size());
    }
    std::array<unsigned char, 8> bytes{};
    file_.read(0, bytes.data(), bytes.size());
    uint64_t length = 0;
    for (size_t i = bytes.size(); i-- > 0;) {
      length = length << 8 | bytes[i];
    }
    if (length > static_cast<uint64_t>(kMaxHeader)) {
      fail("not a safetensors file: header length {} is above {}", length, kMaxHeader);
    }
    if (static_cast<int64_t>(length) > file_.size() - 8) {
      fail("header length {} exceeds the file of {} bytes", length, file_.size());
    }
    std::string text(static_cast<size_t>(length), '\0');
    file_.read(8, text.data(), text.size());
    data_begin_ = 8 + static_cast<int64_t>(length);
    if (text.empty() || text[0] != '{') {
      fail("not a safetensors file: the header does not start with {{");
    }
    return parse_json(text, shown_path(path_));
  }

  Metadata read_metadata(const Json& value) const {
    Metadata metadata;
    if (!value.is_object()) {
      fail("__metadata__ is not an object");
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail("__metadata__ holds a value that is not a string under {}", shown(key));
      }
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  // Numbers of a JSON array that are whole, not negative and fit int64.
  std::vector<int64_t> read_sizes(const std::string& name, const Json& value,
                                  const char* key) const {
    if (!value.is_object() || !value.contains(key) || !value.at(key).is_array()) {
      fail("tensor {} has no array {}", shown(name), key);
    }
    std::vector<int64_t> sizes;
    for (const Json& number : value.at(key)) {
      if (!number.is_number_unsigned() ||
          number.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        fail("tensor {} has a {} whose numbers are not whole and in [0, 2^63)", shown(name), key);
      }
      sizes.push_back(number.get<int64_t>());
    }
    return sizes;
  }

  Entry read_entry(const std::string& name, const Json& value) const {
    const std::vector<int64_t> shape = read_sizes(name, value, "shape");
    const std::vector<int64_t> offsets = read_sizes(name, value, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail("tensor {} has data_offsets {} instead of [begin, end]", shown(name),
           shown(fmt::format("{}", offsets)));
    }
    if (!value.contains("dtype") || !value.at("dtype").is_string()) {
      fail("tensor {} has no dtype", shown(name));
    }
    const auto text = value.at("dtype").get<std::string>();
    const std::optional<DType> dtype = dtype_named(text);
    if (!dtype) {
      fail("tensor {} has dtype {}, which is not supported", shown(name), shown(text));
    }
    int64_t bytes = dtype_size(*dtype);
    bool fits = true;
    for (const int64_t size : shape) {
      fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
    }
    if (!fits || bytes != offsets[1] - offsets[0]) {
      fail("tensor {} of dtype {} and shape {} does not take the {} bytes of its data_offsets",
           shown(name), text, shown(fmt::format("{}", shape)), offsets[1] - offsets[0]);
    }
    return {name, *dtype, shape, offsets[0], offsets[1]};
  }

  // The data lies without gaps or overlaps and fills the rest of the file.
  void check_offsets(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    int64_t expected = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != expected) {
        fail("tensor {} begins at byte {} of the data, expected {}", shown(entry.name), entry.begin,
             expected);
      }
      expected = entry.end;
    }
    if (data_begin_ + expected != file_.size()) {
      fail("the header describes {} bytes of data, the file holds {}", expected,
           file_.size() - data_begin_);
    }
  }

  // A bool of another value than 0 and 1 must not get into the program.
  void check_bools(const Entry& entry, const Tensor& x) const {
    if (entry.dtype != kBool) {
      return;
    }
    const auto* bytes = static_cast<const unsigned char*>(x.raw_data());
    if (std::any_of(bytes, bytes + x.numel(), [](unsigned char b) { return b > 1; })) {
      fail("tensor {} holds a bool that is neither 0 nor 1", shown(entry.name));
    }
  }

  std::filesystem::path path_;
  FileReader file_;
  int64_t data_begin_ = 0;
};

}  // namespace

void write_safetensors(const std::filesystem::path& path, const nn::NamedTensors& tensors,
                       const Metadata& metadata) {
  const NoGradGuard no_grad;
  const nn::NamedTensors ordered = in_file_order(tensors);
  const std::string header = header_text(ordered, metadata);
  FileWriter file(path);
  std::array<unsigned char, 8> length{};
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  }
  file.write(length.data(), length.size());
  file.write(header);
  for (const auto& [name, x] : ordered) {
    const Tensor data = x.contiguous();
    file.write(data.raw_data(), static_cast<size_t>(bytes_of(data)));
  }
  file.finish();
}

Safetensors read_safetensors(const std::filesystem::path& path,
                             const std::function<void(int64_t)>& check) {
  return Reader(path).read(check);
}

}  // namespace chargrad::train
