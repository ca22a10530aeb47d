// The container's reader against hostile headers, and the writer against the reader.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "temp_dir.h"

namespace lily {
namespace {

std::string with_length(const std::string& json, std::uint64_t length) {
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i) out[std::size_t(i)] = char(length >> (8 * i));
  return out + json;
}
std::string file_of(const std::string& json, std::size_t data_bytes) {
  return with_length(json, json.size()) + std::string(data_bytes, '\1');
}

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes.data(), bytes.size())), bytes.size(), "x.safetensors");
}
/// The message, or "" when it parses.
std::string error_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsWhatIsWellFormed) {
  const auto header = parse(file_of(
      R"({"__metadata__":{"format":"mlx"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"U8","shape":[0,7],"data_offsets":[4,4]},"f":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[16,17]}})",
      17));
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.metadata.at("format"), "mlx");
  EXPECT_EQ(header.tensors[0].name, "a");  // by offset
  EXPECT_EQ(header.tensors[1].name, "e");
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_EQ(header.tensors[2].dtype, DType::bf16);
  EXPECT_EQ(header.tensors[2].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[2].bytes, 12u);
  EXPECT_FALSE(header.tensors[3].dtype.has_value());  // known, not used here
  EXPECT_EQ(error_of(file_of("{}", 0)), "");
}

struct Hostile {
  const char* what;
  std::string bytes;
  std::vector<std::string> named;  // what the message must name
};

std::string one(const std::string& fields, std::size_t data) {
  return file_of("{\"w\":{" + fields + "}}", data);
}

/// A table, not a procedure: one row a kind of damage.
std::vector<Hostile> hostile_files() {
  const std::string good = R"("dtype":"F32","shape":[4],"data_offsets":[0,16])";
  const std::string two_same =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  const std::string deep = std::string(100000, '[');
  return {
      {"empty file", "", {"0 bytes"}},
      {"seven bytes", "1234567", {"7 bytes"}},
      {"header length 2^60", with_length("{}", std::uint64_t(1) << 60), {"1152921504606846976", "limit"}},
      {"header length 2^64 - 1", with_length("{}", ~std::uint64_t(0)), {"18446744073709551615"}},
      {"cut inside the header", one(good, 16).substr(0, 30), {"30 bytes", "missing", "interrupted"}},
      {"one byte short", one(good, 15), {"1 bytes are missing", "tensor w", "interrupted"}},
      {"one byte too many", one(good, 17), {"1 bytes too many"}},
      {"not JSON", file_of("{\"w\":", 0), {"not valid JSON"}},
      {"bad UTF-8", file_of("{\"\xff\":{}}", 0), {"not valid JSON"}},
      {"an array", file_of("[]", 0), {"expected a JSON object", "array"}},
      {"a number", file_of("7", 0), {"expected a JSON object"}},
      {"deep JSON", file_of(deep, 0), {"expected a JSON object"}},
      {"deep JSON in a tensor", file_of("{\"w\":" + deep, 0), {"tensor w", "array"}},
      {"deep JSON in a shape", file_of(R"({"w":{"shape":)" + deep, 0), {"tensor w", "shape"}},
      {"nested object", one(R"("dtype":{"a":1})", 0), {"tensor w", "dtype", "an object"}},
      {"tensor twice", file_of("{\"w\":{" + good + "},\"w\":{" + good + "}}", 16), {"w", "twice"}},
      {"field twice", one(R"("dtype":"F32","dtype":"F32")", 0), {"tensor w", "dtype", "twice"}},
      {"no dtype", one(R"("shape":[4],"data_offsets":[0,16])", 16), {"tensor w", "dtype", "missing"}},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,16])", 16), {"tensor w", "shape", "missing"}},
      {"no offsets", one(R"("dtype":"F32","shape":[4])", 16), {"tensor w", "data_offsets", "missing"}},
      {"unknown field", one(good + R"(,"extra":1)", 16), {"tensor w", "extra"}},
      {"unknown dtype", one(R"("dtype":"F31","shape":[4],"data_offsets":[0,16])", 16), {"tensor w", "F31"}},
      {"lying dtype",
       one(R"("dtype":"BF16","shape":[4],"data_offsets":[0,16])", 16),
       {"tensor w", "8 bytes", "hold 16"}},
      {"lying shape",
       one(R"("dtype":"F32","shape":[5],"data_offsets":[0,16])", 16),
       {"tensor w", "20 bytes", "hold 16"}},
      {"negative dimension",
       one(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])", 16),
       {"tensor w", "shape", "-4"}},
      {"fraction", one(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])", 16), {"tensor w", "shape", "4.0"}},
      {"dimension 2^63",
       one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,16])", 16),
       {"tensor w", "shape"}},
      {"overflowing shape",
       one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
       {"tensor w", "overflows"}},
      {"overflow hidden by a zero",
       one(R"("dtype":"F32","shape":[9223372036854775807,4,0],"data_offsets":[0,0])", 0),
       {"tensor w", "overflows"}},
      {"nine dimensions",
       one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", 1),
       {"tensor w", "8"}},
      {"backward offsets", one(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])", 16), {"tensor w", "backwards"}},
      {"offsets beyond 2^63",
       one(R"("dtype":"F32","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615])", 0),
       {"tensor w"}},
      {"three offsets", one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16,32])", 16), {"tensor w", "two"}},
      {"one offset", one(R"("dtype":"F32","shape":[4],"data_offsets":[0])", 16), {"tensor w", "2 data_offsets"}},
      {"overlap", file_of(two_same, 12), {"tensor b", "inside tensor a"}},
      {"gap",
       one(R"("dtype":"F32","shape":[4],"data_offsets":[8,24])", 24),
       {"tensor w", "8 bytes belong to no tensor"}},
      {"metadata not strings", file_of(R"({"__metadata__":{"a":1}})", 0), {"__metadata__"}},
      {"metadata not an object", file_of(R"({"__metadata__":7})", 0), {"__metadata__"}},
      {"tensor null", file_of(R"({"w":null})", 0), {"tensor w", "null"}},
  };
}

TEST(Safetensors, RefusesHostileFilesByName) {
  for (const Hostile& h : hostile_files()) {
    const std::string message = error_of(h.bytes);
    EXPECT_NE(message, "") << h.what << " was accepted";
    EXPECT_NE(message.find("x.safetensors"), std::string::npos) << h.what << ": " << message;
    for (const std::string& word : h.named)
      EXPECT_NE(message.find(word), std::string::npos) << h.what << ": expected \"" << word << "\" in: " << message;
    EXPECT_LT(message.size(), 800u) << h.what;
  }
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string whole = file_of(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
      11);
  ASSERT_EQ(error_of(whole), "");
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "") << n << " bytes";
}

TEST(Safetensors, ControlCharactersOfANameStayOutOfTheMessage) {
  const std::string message = error_of(file_of("{\"a\\u001b[2Jb\":7}", 0));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TempDir dir;
  const float a[3] = {1, 2, 3};
  const std::uint16_t b[2] = {7, 8};
  {
    SafetensorsWriter writer(dir / "t.safetensors", {{"a", DType::f32, {3}}, {"b \"quoted\"", DType::bf16, {1, 2}}},
                             {{"k", "v"}});
    writer.write(a, 5);  // pieces of any size
    writer.write(reinterpret_cast<const char*>(a) + 5, sizeof(a) - 5);
    EXPECT_FALSE(std::filesystem::exists(dir / "t.safetensors"));
    writer.write(b, sizeof(b));
    writer.finish();
  }
  const SafetensorsFile file(dir / "t.safetensors");
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(std::memcmp(file.data(file.at("a")), a, sizeof(a)), 0);
  EXPECT_EQ(std::memcmp(file.data(file.at("b \"quoted\"")), b, sizeof(b)), 0);
  EXPECT_EQ(file.at("a").offset % 64, 0u);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THROW(file.at("c"), Error);
}

TEST(SafetensorsWriter, UnfinishedLeavesNothing) {
  TempDir dir;
  {
    SafetensorsWriter writer(dir / "t.safetensors", {{"a", DType::f32, {3}}});
    EXPECT_THROW(writer.finish(), Error);
    EXPECT_THROW(writer.write(std::string(13, 'x').data(), 13), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(MappedFile, NamesFileAndReason) {
  TempDir dir;
  try {
    MappedFile file(dir / "absent");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
  EXPECT_THROW(MappedFile{dir.path()}, Error);  // a directory
  write_bytes(dir / "empty", "");
  EXPECT_EQ(MappedFile(dir / "empty").size(), 0u);
}

}  // namespace
}  // namespace lily
