// Small parts: UTF-8, NFC, JSON as Python writes it, reasoning, the streaming decoder, the regex dialect.
#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "support.h"
#include "text/json_text.h"
#include "text/nfc.h"
#include "text/reasoning.h"
#include "text/regex_splitter.h"
#include "text/stream_decoder.h"
#include "text/unicode_versions.h"
#include "text/utf8.h"

namespace lily {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_utf8_lossy(out, bytes);
  return out;
}

TEST(Utf8, EveryCodePointThereAndBack) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string s;
    append_utf8(s, c);
    const Utf8Step step = utf8_step(s);
    ASSERT_EQ(step.kind, Utf8Kind::valid) << c;
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, static_cast<int>(s.size()));
    for (size_t n = 1; n < s.size(); ++n)
      ASSERT_EQ(utf8_step(std::string_view(s).substr(0, n)).kind, Utf8Kind::incomplete);
  }
}

// The examples of the Unicode standard (table 3-8) and of Python's decoder.
TEST(Utf8, MaximalPartsBecomeOneReplacement) {
  EXPECT_EQ(lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"), "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
}

TEST(Utf8, StreamEqualsWholeInEveryCut) {
  test::Random random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t n = random.below(12); n > 0; --n) {
      if (random.below(2)) {
        append_utf8(bytes, static_cast<uint32_t>(random.below(0xD800)));
      } else {
        bytes += static_cast<char>(random.below(256));
      }
    }
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      Utf8Stream stream;
      std::string joined;
      for (const auto part : {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
        const std::string delta = stream.push(part);
        ASSERT_EQ(lossy(delta), delta);
        joined += delta;
        ASSERT_LE(stream.pending().size(), 3u);
      }
      joined += stream.finish();
      ASSERT_EQ(joined, lossy(bytes));
    }
  }
}

TEST(Utf8, PythonStrip) {
  EXPECT_EQ(python_strip(" \t\n\x1c\x1f\u00a0\u2003\u3000\u2028x y\u0085\u205f "), "x y");
  EXPECT_EQ(python_strip("\u200bx\u200b"), "\u200bx\u200b");
  EXPECT_EQ(python_strip(" \u3000 "), "");
  EXPECT_EQ(python_strip("\xFF \xA0"), "\xFF \xA0");  // bytes that are no characters are no white space
}

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string result(reinterpret_cast<char*>(out), n);
  std::free(out);
  return result;
}

TEST(Nfc, EqualsTheLibraryOnRandomText) {
  const std::vector<std::pair<uint32_t, uint32_t>> pools = {{0x20, 0x7F},     {0xC0, 0x250},    {0x300, 0x345},
                                                            {0x1100, 0x11A6}, {0x11A8, 0x1200}, {0xAC00, 0xD7A4},
                                                            {0x900, 0x9F0},   {0x4E00, 0x4E20}, {0x1E00, 0x2000}};
  test::Random random(2);
  int changed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t n = random.below(15); n > 0; --n) {
      const auto [low, high] = pools[random.below(pools.size())];
      append_utf8(text, low + static_cast<uint32_t>(random.below(high - low)));
    }
    const std::string got = nfc(text);
    ASSERT_EQ(got, utf8proc_nfc(text));
    ASSERT_EQ(nfc(got), got);
    changed += got != text;
  }
  EXPECT_GT(changed, 1000);
}

TEST(Nfc, WhatTheReferenceDoesNotKnow) {
  EXPECT_EQ(nfc("\u1112\u1161\u11a7"), "\ud558\u11a7");  // U+11A7 is no final: nothing is lost
  EXPECT_EQ(nfc("\u0301\u0c3c"), "\u0301\u0c3c");        // a mark of Unicode 14 does not move
  EXPECT_EQ(nfc("\u0301\u0323"), "\u0323\u0301");        // an old one does
  EXPECT_TRUE(is_outside_nfc(0x11A7));
  EXPECT_FALSE(is_outside_nfc(0x301));
  EXPECT_FALSE(is_outside_nfc(0x10FFFF));
}

TEST(Nfc, CarriesTheMask) {
  std::string mask = std::string("\0\0\1\1\1\0", 6);
  EXPECT_EQ(nfc("xae\u0301z", &mask), "xa\u00e9z");
  EXPECT_EQ(mask, std::string("\0\0\1\1\0", 5));
}

TEST(PythonJson, Floats) {
  const std::vector<std::pair<double, std::string>> table = {{1.0, "1.0"},
                                                             {0.0, "0.0"},
                                                             {-0.0, "-0.0"},
                                                             {1e-5, "1e-05"},
                                                             {1e-4, "0.0001"},
                                                             {1e16, "1e+16"},
                                                             {1e15, "1000000000000000.0"},
                                                             {0.1, "0.1"},
                                                             {123456789.123, "123456789.123"},
                                                             {1e22, "1e+22"},
                                                             {5e-324, "5e-324"},
                                                             {1.5e300, "1.5e+300"},
                                                             {-2.5, "-2.5"},
                                                             {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                             {9007199254740993.0, "9007199254740992.0"},
                                                             {1.234e-7, "1.234e-07"},
                                                             {100.0, "100.0"}};
  for (const auto& [value, text] : table) EXPECT_EQ(python_float(value), text);
}

TEST(PythonJson, KeepsWhatItWasGiven) {
  for (const char* text :
       {R"({"b": 1, "a": [true, false, null], "c": {"x": 1.5}})", R"({"n": 123456789012345678901234567890})",
        R"([-99999999999999999999, 18446744073709551615, -9223372036854775808])",
        R"("é \u0000 \u001f \" \\ \n\t\b\f\r / ")", R"([])", R"({})", R"([{}, [], ""])"}) {
    EXPECT_EQ(python_json(parse_json(text)), text);
  }
  EXPECT_EQ(python_json(parse_json(R"({"a": 1, "b": 2, "a": 3})")), R"({"a": 3, "b": 2})");
  EXPECT_EQ(python_json(parse_json("1E3")), "1000.0");
}

TEST(PythonJson, BadTextIsAnError) {
  for (const char* text : {"", "{", "[1,]", "nul", "\"\xFF\"", "1e999", "\"\\ud800\"", "{} {}", "01"}) {
    EXPECT_THROW(parse_json(text), Error) << text;
  }
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']')));
  EXPECT_THROW(parse_json(std::string(65, '[') + std::string(65, ']')), Error);
  EXPECT_THROW(parse_json(std::string(1'000'000, '[')), Error);
}

TEST(PythonJson, ValuesAtFaultAreNamedByPath) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_json(text, 5);
      return "parsed";
    } catch (const Error& e) {
      return e.what();
    }
  };
  const std::string range = "expected a number in the range of a double, found 1e400";
  EXPECT_EQ(refusal("1e400"), range);
  EXPECT_EQ(refusal(R"({"a": 1e400})"), "a: " + range);
  EXPECT_EQ(refusal(R"({"a": [1, {"b": [[], 1e400]}]})"), "a[1].b[1]: " + range);
  EXPECT_EQ(refusal(R"({"z": {}, "a": {"b c": {"d": 1e400}}})"), "a: " + range);  // no path leads through "b c"
  EXPECT_EQ(refusal(R"({"a": 1, "b": 2, "a": 1e400})"), "a: " + range);
  EXPECT_EQ(refusal(R"({"a": {"b": [0, [[[]]]]}})"), "a.b[1][0][0]: JSON nested deeper than 5");
  // A NUL is no end of the text, wherever it stands.
  for (const char* text : {"{}#", "{}#x", "{#}", "#", "[1#,2]", "\"#\""}) {
    std::string with_nul = text;
    std::replace(with_nul.begin(), with_nul.end(), '#', '\0');
    EXPECT_TRUE(refusal(with_nul).starts_with("not JSON: byte ")) << text << ": " << refusal(with_nul);
  }
}

TEST(PythonJson, ManyKeysAreLinear) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(parse_json(text + "}").size(), 200'000u);
}

struct Parts {
  std::string reasoning, content;
  bool operator==(const Parts&) const = default;
};

Parts split_reasoning(const std::vector<std::string>& pieces, bool thinking) {
  ReasoningParser parser(thinking);
  Parts parts;
  const auto take = [&](const ReasoningParser::Delta& d) {
    if (!d.reasoning.empty()) {
      EXPECT_EQ(parts.content, "");
    }
    parts.reasoning += d.reasoning;
    parts.content += d.content;
  };
  for (const auto& piece : pieces) take(parser.push(piece));
  take(parser.finish());
  return parts;
}

TEST(Reasoning, EveryCutGivesTheSame) {
  const std::vector<std::pair<std::string, Parts>> table = {
      {"r</think>\n\nc", {"r", "c"}},
      {"\nline\n\nline\n</think>\n\nc\n\n", {"line\n\nline", "c\n\n"}},
      {"</think>\n\nc", {"", "c"}},
      {"\n\n</think>c", {"", "c"}},
      {"r</think>c </think> d", {"r", "c </think> d"}},
      {"a < b </thin </think></think>", {"a < b </thin ", "</think>"}},
      {"<</think>x", {"<", "x"}},
      {"</</think>x", {"</", "x"}},
      {"never closed\n", {"never closed\n", ""}},
      {"cut </thi", {"cut </thi", ""}},
      {"r\n</think>\n\n", {"r", ""}},
      {"r</think>{\"a\": 1}", {"r", "{\"a\": 1}"}},
      {"", {"", ""}},
  };
  for (const auto& [text, expected] : table) {
    EXPECT_EQ(split_reasoning({text}, true), expected) << text;
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(split_reasoning(bytes, true), expected) << text;
    for (size_t a = 0; a <= text.size(); ++a) {
      for (size_t b = a; b <= text.size(); ++b) {
        EXPECT_EQ(split_reasoning({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, true), expected) << text;
      }
    }
    EXPECT_EQ(split_reasoning({text}, false), (Parts{"", text}));
  }
}

TEST(Reasoning, OrdinaryTextDoesNotWait) {
  ReasoningParser parser(true);
  EXPECT_EQ(parser.push("abc").reasoning, "abc");
  EXPECT_EQ(parser.push("d<").reasoning, "d");
  EXPECT_EQ(parser.push("e").reasoning, "<e");
  EXPECT_TRUE(parser.thinking());
  EXPECT_EQ(parser.push("</think>x").content, "x");
  EXPECT_FALSE(parser.thinking());
}

TEST(Reasoning, StateOfARawPrompt) {
  EXPECT_TRUE(ends_in_thinking("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_thinking("<think>\n<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(ends_in_thinking("hello"));
}

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(test::tiny_dir());
  return tokenizer;
}

void expect_stream_equals_whole(const std::vector<int32_t>& ids, SpecialTokens special) {
  StreamDecoder decoder(tiny(), special);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string delta = decoder.push(id);
    ASSERT_EQ(lossy(delta), delta);
    joined += delta;
  }
  joined += decoder.finish();
  ASSERT_EQ(joined, tiny().decode_text(ids, special));
}

TEST(StreamDecoder, RandomIds) {
  test::Random random(9);
  for (int round = 0; round < 5000; ++round) {
    std::vector<int32_t> ids;
    for (size_t n = random.below(30); n > 0; --n) {
      // mostly single bytes: half characters and nonsense
      ids.push_back(static_cast<int32_t>(random.below(4) ? random.below(256) : random.below(9000)));
    }
    expect_stream_equals_whole(ids, SpecialTokens::show);
    expect_stream_equals_whole(ids, SpecialTokens::skip);
  }
}

TEST(StreamDecoder, CharactersArriveWholeAndAtOnce) {
  for (const auto& c : test::data_json("tokens.json")) {
    const auto text = c["text"].get<std::string>();
    StreamDecoder decoder(tiny());
    std::string joined;
    for (const int32_t id : tiny().encode(text, ControlTokens::as_text)) {
      const std::string delta = decoder.push(id);
      const std::string_view bytes = tiny().token_bytes(id);
      if (bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz ") == std::string_view::npos) {
        EXPECT_EQ(delta, bytes);  // ASCII never waits
      }
      if (text.find("\uFFFD") == std::string::npos) {
        EXPECT_EQ(delta.find("\uFFFD"), std::string::npos);
      }
      joined += delta;
    }
    EXPECT_EQ(decoder.finish(), "");
    EXPECT_EQ(joined, nfc(text));
  }
}

TEST(StreamDecoder, UnfinishedTailIsOneReplacement) {
  const auto ids = tiny().encode("\U0001F600", ControlTokens::as_text);
  ASSERT_GT(ids.size(), 1u);
  StreamDecoder decoder(tiny());
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(RegexSplitter, DialectOfTheFile) {
  const auto split = [](const std::string& pattern, const std::string& text) {
    std::vector<std::string_view> pieces;
    RegexSplitter(pattern, "here").split(text, pieces);
    std::string joined;
    for (const auto piece : pieces) joined += std::string(piece) + "|";
    return joined;
  };
  EXPECT_EQ(split(R"(\s+)", "a \u2003b\u180ec"), "a| \u2003|b\u180ec|");  // U+180E is no white space
  EXPECT_EQ(split(R"([\s]+)", "a\u180eb c"), "a\u180eb| |c|");
  EXPECT_EQ(split(R"(\S+)", "a\u180eb c"), "a\u180eb| |c|");
  EXPECT_EQ(split(R"([^\s]+)", "a\u180eb c"), "a\u180eb| |c|");
  EXPECT_EQ(split(R"(\p{L}+)", "a\U00031350b1"), "a\U00031350b|1|");    // a letter of Unicode 15
  EXPECT_EQ(split(R"([\p{N}]+)", "1\U00011F502a"), "1\U00011F502|a|");  // a digit of Unicode 15
  EXPECT_EQ(split("x*", "axxb"), "a|xx|b|");                            // empty matches cut nothing
  EXPECT_EQ(split("a", ""), "");
  for (const char* pattern :
       {R"(\w)", R"(\b)", R"(\h)", "^a", "a$", "[a&&b]", "[[:alpha:]]", R"([\S])", "a(", "[]a]"}) {
    EXPECT_THROW(RegexSplitter(pattern, "here"), Error) << pattern;
  }
}

}  // namespace
}  // namespace lily
