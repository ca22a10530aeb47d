// What is said about a text that is no JSON: by hand for every kind of fault, and of anything the parser refuses.
#include "base/json_fault.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

namespace lily {
namespace {

/// Empty when `text` is JSON.
std::string fault_of(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json::parse(text).size());
  } catch (const nlohmann::json::parse_error& e) {
    return json_fault(text, e.byte);
  } catch (const nlohmann::json::out_of_range&) {
    return "out of range";
  }
  return "";
}

TEST(JsonFault, SaysWhereWhatWasExpectedAndWhatWasFound) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "byte 1 (line 1, column 1): expected a value, found the end"},
      {"  \n ", "byte 5 (line 2, column 2): expected a value, found the end"},
      {"{", "byte 2 (line 1, column 2): expected a key in quotes or '}', found the end"},
      {"[", "byte 2 (line 1, column 2): expected a value or ']', found the end"},
      {"{x", "byte 2 (line 1, column 2): expected a key in quotes or '}', found 'x'"},
      {R"({"a")", "byte 5 (line 1, column 5): expected ':', found the end"},
      {R"({"a" 1})", "byte 6 (line 1, column 6): expected ':', found '1'"},
      {R"({"a":})", "byte 6 (line 1, column 6): expected a value, found '}'"},
      {R"({"a":1,})", "byte 8 (line 1, column 8): expected a key in quotes, found '}'"},
      {R"({"a":1 "b":2})", "byte 8 (line 1, column 8): expected ',' or '}', found '\"'"},
      {"{\n  \"a\": [1, 2\n}", "byte 16 (line 3, column 1): expected ',' or ']', found '}'"},
      {"[1,]", "byte 4 (line 1, column 4): expected a value, found ']'"},
      {"[1] [2]", "byte 5 (line 1, column 5): expected the end, found '['"},
      {"nul", "byte 1 (line 1, column 1): expected a value, found 'nul'"},
      {"[True]", "byte 2 (line 1, column 2): expected a value or ']', found 'True'"},
      {"[1, 1.]", "byte 5 (line 1, column 5): expected a value, found '1.'"},
      {"[01]", "byte 2 (line 1, column 2): expected a value or ']', found '01'"},
      {"-", "byte 1 (line 1, column 1): expected a value, found '-'"},
      {"\xff", "byte 1 (line 1, column 1): expected a value, found '?'"},
      {"['a']", "byte 2 (line 1, column 2): expected a value or ']', found '''"},
  };
  for (const auto& [text, said] : table) EXPECT_EQ(fault_of(text), "not JSON: " + said) << text;
}

TEST(JsonFault, StringsThatAreNone) {
  for (const char* text : {"[\"abc", "[\"a\nb\"]", "[\"a\\x\"]", "[\"\\u12\"]", "[\"\xc3\"]", "[\"\\", "{\"a\nb\": 1}"}) {
    const std::string said = fault_of(text);
    EXPECT_NE(said.find("byte 2 (line 1, column 2): expected a string in UTF-8"), said.npos) << said;
  }
  EXPECT_NE(fault_of("[\"a long text without an end").find("found '\"a long text without…'"), std::string::npos);
}

// Whatever the parser refuses has a fault inside the text (or at its end) and never "expected the end, found the end".
TEST(JsonFault, EveryRefusedTextHasAFault) {
  const std::string good = R"({"a": [1, -2.5e3, true, null, "x\"y\\ \u00e9"], "b": {"c": {}, "d": []}, "é": "ü"} )";
  ASSERT_EQ(fault_of(good), "");
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good.substr(0, random() % 4 ? good.size() : random() % good.size());
    for (unsigned n = random() % 3; n > 0 && !text.empty(); --n)
      text[random() % text.size()] = random() % 2 ? good[random() % good.size()] : char(random());
    const std::string said = fault_of(text);
    if (said.empty() || said == "out of range") continue;
    ++refused;
    ASSERT_EQ(said.find("not JSON: byte "), 0u) << said;
    const std::size_t byte = std::stoul(said.substr(15));
    ASSERT_GE(byte, 1u) << text;
    ASSERT_LE(byte, text.size() + 1) << text << "\n" << said;
    ASSERT_EQ(said.find("expected the end, found the end"), said.npos) << text << "\n" << said;
    for (const char c : said) ASSERT_GE(static_cast<unsigned char>(c), 0x20) << said;
  }
  EXPECT_GT(refused, 10'000);
}

TEST(JsonFile, NestingIsBounded) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_NO_THROW(parse_json_file(nested(kMaxJsonDepth), "f"));
  EXPECT_NO_THROW(parse_ordered_json_file(nested(kMaxJsonDepth), "f"));
  EXPECT_FALSE(parse_json_or_null("[1]").is_null());
  EXPECT_TRUE(parse_json_or_null("[1").is_null());
  EXPECT_TRUE(parse_json_or_null(nested(kMaxJsonDepth + 1)).is_null());
  const std::string deep = R"({"a":)" + nested(200'000) + "}";
  for (const std::string& text : {nested(kMaxJsonDepth + 1), std::string(1'000'000, '['), deep}) {
    for (const bool ordered : {false, true}) {
      try {
        if (ordered)
          parse_ordered_json_file(text, "f");
        else
          parse_json_file(text, "f");
        ADD_FAILURE();
      } catch (const Error& e) {
        EXPECT_EQ(std::string(e.what()), "f: JSON nested deeper than 64");
      }
    }
  }
}

}  // namespace
}  // namespace lily
