// The format to the byte, and every kind of file that must be refused.
#include "train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/ops.h"
#include "tests/temp_folder.h"

namespace chargrad::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Eight bytes of length, the header, the data.
std::string file_of(const std::string& header, const std::string& data = {}) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return bytes + header + data;
}

class SafetensorsTest : public testing::Test {
 protected:
  std::filesystem::path file() const { return dir.path("x.safetensors"); }

  std::string written(const nn::NamedTensors& tensors, const Metadata& metadata = {}) const {
    std::filesystem::remove(file());
    write_safetensors(file(), tensors, metadata);
    return read_bytes(file());
  }

  std::string error_of(const std::string& bytes) const {
    write_bytes(file(), bytes);
    try {
      read_safetensors(file());
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "no error";
  }

  TempFolder dir;
};

TEST_F(SafetensorsTest, EmptyFileIsAsTheReferenceWritesIt) {
  EXPECT_EQ(written({}), file_of("{}      "));
}

TEST_F(SafetensorsTest, HeadersArePaddedToEightBytes) {
  EXPECT_EQ(written({}, {{"framework", "pt"}}),
            file_of(R"({"__metadata__":{"framework":"pt"}})" + std::string(5, ' ')));
  EXPECT_EQ(written({{"attn.0", zeros({1, 2, 3})}}),
            file_of(R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})",
                    std::string(24, '\0')));
  EXPECT_EQ(written({{"attn0", zeros({1, 1, 2, 3})}}),
            file_of(R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}})" +
                        std::string(7, ' '),
                    std::string(24, '\0')));
}

TEST_F(SafetensorsTest, LargerTypesComeFirstThenNames) {
  const Safetensors read = [&] {
    written({{"b", zeros({1})},
             {"flag", zeros({1}, kBool)},
             {"a", zeros({1})},
             {"half", zeros({1}, kBFloat16)},
             {"d", zeros({1}, kFloat64)},
             {"i", zeros({1}, kInt64)}});
    return read_safetensors(file());
  }();
  std::vector<std::string> names;
  for (const auto& [name, x] : read.tensors) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ElementsAre("i", "d", "a", "b", "half", "flag"));
}

TEST_F(SafetensorsTest, RoundTripKeepsEveryBit) {
  const Tensor x = tensor({{1.5, -0.0}, {1e-40, 3e38}});
  const Tensor strided = x.transpose(0, 1);
  write_safetensors(
      file(), {{"x", x}, {"t", strided}, {"scalar", scalar(7, kInt64)}, {"none", zeros({0, 3})}},
      {{"k", "v"}});
  const Safetensors read = read_safetensors(file());
  EXPECT_EQ(read.metadata.at("k"), "v");
  for (const auto& [name, y] : read.tensors) {
    if (name == "t") {
      EXPECT_EQ(y.to_vector<float>(), strided.to_vector<float>());
    } else if (name == "scalar") {
      EXPECT_EQ(y.shape(), Shape{});
      EXPECT_EQ(y.item(), 7);
    } else if (name == "none") {
      EXPECT_EQ(y.shape(), (Shape{0, 3}));
    } else {
      EXPECT_EQ(std::memcmp(y.raw_data(), x.raw_data(), 16), 0);
    }
  }
  EXPECT_EQ(read.tensors.size(), 4u);
}

TEST_F(SafetensorsTest, RefusesWhatTheReferenceRefuses) {
  const std::string one = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string eight(8, '\0');
  EXPECT_EQ(error_of(file_of(one, eight)), "no error");
  EXPECT_THAT(error_of("1234567"), HasSubstr("7 bytes, the header length alone takes 8"));
  EXPECT_THAT(error_of(std::string(7, '\0') + '\1' + "{}"), HasSubstr("is above 16777216"));
  EXPECT_THAT(error_of(std::string("\x10\0\0\0\0\0\0\0", 8) + "{}"),
              HasSubstr("header length 16 exceeds the file of 10 bytes"));
  EXPECT_THAT(error_of(file_of("\xff")), HasSubstr("does not start with {"));
  EXPECT_THAT(error_of(file_of("{")), HasSubstr("x.safetensors"));
  EXPECT_THAT(error_of(file_of("[]")), HasSubstr("does not start with {"));
  EXPECT_THAT(error_of(file_of(one, eight + "x")), HasSubstr("describes 8 bytes of data, the file "
                                                             "holds 9"));
  EXPECT_THAT(error_of(file_of(one, "123456")), HasSubstr("the file holds 6"));
  const auto with = [&](const std::string& entry) {
    return error_of(file_of("{\"x\":" + entry + "}", eight));
  };
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"),
              HasSubstr("begins at byte 4 of the data, expected 0"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
              HasSubstr("shape [3] does not take the 8 bytes"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2,9223372036854775807],"data_offsets":[0,8]})"),
              HasSubstr("does not take the 8 bytes"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2,18446744073709551614],"data_offsets":[0,8]})"),
              HasSubstr("has a shape whose numbers are not whole"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
              HasSubstr("has a shape whose numbers are not whole"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
              HasSubstr("has a shape whose numbers are not whole"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
              HasSubstr("instead of [begin, end]"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2]})"), HasSubstr("no array data_offsets"));
  std::string ones = "1";
  for (int i = 0; i < 10'000; ++i) {
    ones += ",1";
  }
  EXPECT_LT(with(R"({"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,8]})").size(), 300);
  EXPECT_LT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[)" + ones + "]}").size(), 300);
  EXPECT_THAT(with(R"({"shape":[2],"data_offsets":[0,8]})"), HasSubstr("has no dtype"));
  EXPECT_THAT(with(R"({"dtype":"F99","shape":[2],"data_offsets":[0,8]})"),
              HasSubstr("dtype F99, which is not supported"));
  EXPECT_THAT(with("3"), HasSubstr("no array shape"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":{"a":1}})")),
              HasSubstr("a value that is not a string under a"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":1})")), HasSubstr("not an object"));
}

TEST_F(SafetensorsTest, RefusesSharedBytesDuplicatesAndFalseBools) {
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(error_of(file_of("{\"a\":" + entry + ",\"b\":" + entry + "}", std::string(8, '\0'))),
              HasSubstr("begins at byte 0 of the data, expected 8"));
  EXPECT_THAT(error_of(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", std::string(8, '\0'))),
              HasSubstr("x.safetensors"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2")),
              HasSubstr("neither 0 nor 1"));
}

TEST_F(SafetensorsTest, WriterRefusesANameTwice) {
  EXPECT_THROW(written({{"a", zeros({1})}, {"a", zeros({1})}}), std::invalid_argument);
}

TEST_F(SafetensorsTest, MissingFileAndFolder) {
  try {
    read_safetensors(file());
    ADD_FAILURE();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("No such file or directory"));
  }
  EXPECT_THROW(read_safetensors(dir.path("")), std::runtime_error);
}

}  // namespace
}  // namespace chargrad::train
