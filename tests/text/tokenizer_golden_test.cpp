// Ids of the reference implementation, for a big real vocabulary and for the bundled one.
#include <utf8proc.h>

#include "support.h"
#include "text/tokenizer.h"

namespace lily {
namespace {

using nlohmann::ordered_json;
using test::data_json;

using Ids = std::vector<int32_t>;

constexpr const char* kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The same vocabulary with another regex in the file.
void write_with_regex(const test::TempDir& dir, const std::string& regex) {
  std::string text = test::read_file(test::qwen3_dir() / "tokenizer.json");
  const size_t key = text.find("\"Regex\"");
  const size_t begin = text.find('"', key + 7);
  size_t end = begin + 1;
  while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  dir.write("tokenizer.json", text.replace(begin, end + 1 - begin, ordered_json(regex).dump()));
}

std::string nfc_of(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string result(reinterpret_cast<char*>(out), n);
  std::free(out);
  return result;
}

void expect_golden(const Tokenizer& tokenizer, const char* field) {
  const ordered_json cases = data_json("tokens.json");
  ASSERT_GT(cases.size(), 400u);
  for (const auto& c : cases) {
    const auto text = c["text"].get<std::string>();
    const Ids ids = tokenizer.encode(text, ControlTokens::parse);
    EXPECT_EQ(ids, c[field].get<Ids>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), c["decoded"].get<std::string>());
    const Ids plain = tokenizer.encode(text, ControlTokens::as_text);
    EXPECT_EQ(tokenizer.decode(plain), nfc_of(text));
    for (const int32_t id : plain) EXPECT_FALSE(tokenizer.is_control(id)) << text;
  }
}

TEST(TokenizerGolden, Qwen3) {
  LILY_REQUIRE_QWEN3();
  expect_golden(Tokenizer::load(test::qwen3_dir()), "qwen3");
}

TEST(TokenizerGolden, Qwen35Regex) {
  LILY_REQUIRE_QWEN3();
  const test::TempDir dir;
  write_with_regex(dir, kQwen35Regex);
  expect_golden(Tokenizer::load(dir.path()), "qwen35_regex");
}

TEST(TokenizerGolden, TheRegexOfTheFileCounts) {
  LILY_REQUIRE_QWEN3();
  int differ = 0;
  for (const auto& c : data_json("tokens.json")) differ += c["qwen3"] != c["qwen35_regex"];
  EXPECT_GT(differ, 10);  // else the two tests above could not tell the regexes apart
}

TEST(TokenizerGolden, TinyPrompts) {
  const Tokenizer tokenizer = Tokenizer::load(test::tiny_dir());
  EXPECT_EQ(tokenizer.vocab_size(), 8192);
  EXPECT_EQ(tokenizer.end_tokens(), (Ids{8180, 8182}));
  const ordered_json cases = data_json("tiny_prompts.json");
  ASSERT_EQ(cases.size(), 30u);
  for (const auto& c : cases) {
    const auto prompt = c["prompt"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(prompt, ControlTokens::parse), c["ids"].get<Ids>()) << prompt;
    EXPECT_EQ(tokenizer.decode_text(c["ids"].get<Ids>()), prompt);
    EXPECT_EQ(tokenizer.decode_text(c["greedy_ids"].get<Ids>()), c["greedy_text"].get<std::string>());
  }
}

}  // namespace
}  // namespace lily
