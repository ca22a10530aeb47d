// The tokenizer's rules, on the bundled vocabulary and on small files made here.
#include "text/tokenizer.h"

#include "base/error.h"
#include "support.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace lily {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(test::tiny_dir());
  return tokenizer;
}

// 256 byte tokens, then "ab", "abc", "bc" and added tokens from id 300 on.
ordered_json small_file() {
  ordered_json vocab = ordered_json::object();
  const auto alphabet = byte_alphabet();
  for (int b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(character, alphabet[b]);
    vocab[character] = b;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["bc"] = 258;
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {{{"id", 300}, {"content", "<|im_end|>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", R"(\s+|[^\s]+)"}}}, {"behavior", "Isolated"}, {"invert", false}},
          byte_level}}}},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", {"b c", "a b", "ab c"}}}}};
}

Tokenizer load(const ordered_json& file) {
  const test::TempDir dir;
  dir.write("tokenizer.json", file.dump());
  return Tokenizer::load(dir.path());
}

std::string load_error(const ordered_json& file) {
  try {
    load(file);
  } catch (const Error& e) {
    return e.what();
  }
  return "loaded";
}

Ids ids(const Tokenizer& t, const std::string& text) {
  return t.encode(text, ControlTokens::parse);
}

TEST(Tokenizer, MergesByRank) {
  const Tokenizer t = load(small_file());
  EXPECT_EQ(ids(t, "abc"), (Ids{'a', 258}));  // "b c" comes first, and "a bc" is no merge
  EXPECT_EQ(ids(t, "ab abc"), (Ids{256, ' ', 'a', 258}));
  EXPECT_EQ(ids(t, ""), Ids{});
  auto file = small_file();
  file["model"]["merges"] = ordered_json::parse(R"([["a", "b"], ["ab", "c"]])");  // the newer form
  EXPECT_EQ(ids(load(file), "abcab"), (Ids{257, 256}));
  file = small_file();
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids(load(file), "abc"), (Ids{257}));
}

TEST(Tokenizer, DirectoryWithTokenizerFileAlone) {
  const Tokenizer t = load(small_file());
  EXPECT_EQ(t.vocab_size(), 301);
  EXPECT_EQ(t.end_tokens(), (Ids{300}));
  EXPECT_EQ(t.id_of("<|im_end|>"), 300);
  EXPECT_EQ(t.id_of("abc"), 257);
  EXPECT_FALSE(t.id_of("abcd"));
  EXPECT_THROW(Tokenizer::load("/nowhere"), Error);
}

TEST(Tokenizer, EndTokensAreAUnion) {
  const test::TempDir dir;
  dir.write("tokenizer.json", small_file().dump());
  dir.write("generation_config.json", R"({"eos_token_id": [5, 300]})");
  dir.write("tokenizer_config.json", R"({"eos_token": {"content": "abc"}})");
  EXPECT_EQ(Tokenizer::load(dir.path()).end_tokens(), (Ids{5, 257, 300}));
  dir.write("generation_config.json", R"({"eos_token_id": 7})");
  dir.write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(Tokenizer::load(dir.path()).end_tokens(), (Ids{7, 300}));
  for (const char* bad : {R"({"eos_token_id": "x"})", R"({"eos_token_id": -1})", "[]", "{"}) {
    dir.write("generation_config.json", bad);
    EXPECT_THROW(Tokenizer::load(dir.path()), Error) << bad;
  }
  dir.write("generation_config.json", "{}");
  for (const char* bad : {R"({"eos_token": "nope"})", R"({"eos_token": 5})", R"({"add_bos_token": true})"}) {
    dir.write("tokenizer_config.json", bad);
    EXPECT_THROW(Tokenizer::load(dir.path()), Error) << bad;
  }
}

TEST(Tokenizer, WhatIsNotDoneIsRefusedByName) {
  const auto refused = [](const std::string& pointer, const ordered_json& value) {
    auto file = small_file();
    file[ordered_json::json_pointer("/" + pointer)] = value;
    return load_error(file);
  };
  const std::string split = "pre_tokenizer/pretokenizers/0/";
  const std::vector<std::tuple<std::string, ordered_json, std::string>> table = {
      {"truncation", {{"max_length", 5}}, "truncation"},
      {"padding", {{"length", 5}}, "padding"},
      {"surprise", 1, "surprise"},
      {"normalizer/type", "NFKC", "normalizer.type"},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}, "normalizer.normalizers[0]"},
      {split + "behavior", "Removed", "pretokenizers[0].behavior"},
      {split + "invert", true, "pretokenizers[0].invert"},
      {split + "pattern", {{"String", " "}}, "pretokenizers[0].pattern"},
      {split + "pattern/Regex", "\\w+", "pattern.Regex"},
      {split + "pattern/Regex", "^a", "pattern.Regex"},
      {split + "pattern/Regex", "[a&&b]", "pattern.Regex"},
      {split + "pattern/Regex", "(", "pattern.Regex"},
      {split + "pattern/Regex", std::string(500, 'a') + "éé(", "after '…aaaaaaaaaaaaaaaaaaaéé('"},
      {split + "type", "Digits", "pretokenizers[0].type"},
      {"pre_tokenizer/pretokenizers/1/add_prefix_space", true, "pretokenizers[1].add_prefix_space"},
      {"pre_tokenizer/pretokenizers", ordered_json::array(), "pre_tokenizer"},
      {"post_processor", {{"type", "TemplateProcessing"}}, "post_processor.type"},
      {"decoder/type", "Metaspace", "decoder.type"},
      {"model/type", "Unigram", "model.type"},
      {"model/dropout", 0.1, "model.dropout"},
      {"model/byte_fallback", true, "model.byte_fallback"},
      {"model/fuse_unk", true, "model.fuse_unk"},
      {"model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"model/new_thing", 1, "model.new_thing"},
      {"model/vocab/a", -1, "model.vocab"},
      {"model/vocab/a", "x", "model.vocab"},
      {"model/vocab/a", 98, "model.vocab"},
      {"model/vocab/zz", 99999999, "id 99999999"},
      {"model/vocab", ordered_json::object(), "model.vocab"},
      {"model/merges/0", "a", "model.merges[0]"},
      {"model/merges/0", "a b c", "model.merges[0]"},
      {"model/merges/0", "a zzz", "model.merges[0]"},
      {"model/merges/0", {"a"}, "model.merges[0]"},
      {"model/merges/0", 5, "model.merges[0]"},
      {"added_tokens/0/single_word", true, "added_tokens[0].single_word"},
      {"added_tokens/0/content", "", "added_tokens[0].content"},
      {"added_tokens/0/id", 5, "'<|im_end|>'"},
      {"added_tokens/0/flavour", "x", "added_tokens[0].flavour"},
  };
  EXPECT_EQ(load_error(small_file()), "loaded");
  for (const auto& [pointer, value, named] : table) {
    const std::string message = refused(pointer, value);
    EXPECT_NE(message.find(named), std::string::npos) << pointer << ": " << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
  }
  auto no_byte = small_file();
  no_byte["model"]["vocab"].erase("z");
  EXPECT_NE(load_error(no_byte).find("byte 122"), std::string::npos) << load_error(no_byte);
}

TEST(Tokenizer, BrokenFilesAreErrors) {
  const std::string good = small_file().dump();
  test::Random random(11);
  for (int round = 0; round < 300; ++round) {
    const test::TempDir dir;
    std::string bad = good;
    if (round % 2) {
      bad.resize(random.below(bad.size()));
    } else {
      for (int i = 0; i < 3; ++i) bad[random.below(bad.size())] = static_cast<char>(random.below(256));
    }
    dir.write("tokenizer.json", bad);
    try {
      Tokenizer::load(dir.path()).encode("abc <|im_end|>", ControlTokens::parse);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("tokenizer.json"), std::string::npos) << e.what();
    }
  }
}

TEST(Tokenizer, FlagsOfAddedTokens) {
  auto file = small_file();
  file["added_tokens"] = {
      {{"id", 300}, {"content", "<L>"}, {"lstrip", true}, {"normalized", false}},
      {{"id", 301}, {"content", "<R>"}, {"rstrip", true}, {"normalized", false}},
      {{"id", 302}, {"content", "e\u0301!"}, {"normalized", true}},
      {{"id", 303}, {"content", "e\u0301?"}, {"normalized", false}},
      {{"id", 304}, {"content", "<R"}, {"normalized", false}},
  };
  const Tokenizer t = load(file);
  EXPECT_EQ(ids(t, "a \u3000<L> b"), (Ids{'a', 300, ' ', 'b'}));
  EXPECT_EQ(ids(t, "a <R> \n b"), (Ids{'a', ' ', 301, 'b'}));
  EXPECT_EQ(ids(t, "<R> <L>"), (Ids{301, 300}));
  EXPECT_EQ(ids(t, "<R<R>"), (Ids{304, 301}));  // the longest at a place
  EXPECT_EQ(ids(t, "\u00e9!"), (Ids{302}));     // in the normalised text
  EXPECT_EQ(ids(t, "e\u0301!"), (Ids{302}));
  EXPECT_EQ(ids(t, "e\u0301?"), (Ids{303}));  // in the raw text
  EXPECT_EQ(ids(t, "\u00e9?"), (Ids{0xC3, 0xA9, '?'}));
  EXPECT_EQ(t.encode("<L>", ControlTokens::as_text), (Ids{'<', 'L', '>'}));
  EXPECT_EQ(t.encode("e\u0301!", ControlTokens::as_text), (Ids{0xC3, 0xA9, '!'}));
  const std::vector<TextSegment> content = {{"<L>", false}, {"e\u0301!<L>", true}, {"e\u0301!", false}};
  EXPECT_EQ(t.encode(content), (Ids{300, 0xC3, 0xA9, '!', '<', 'L', '>', 302}));
}

TEST(Tokenizer, BytesThatAreNotUtf8AreKept) {
  test::Random random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random.below(20); n > 0; --n)
      text += static_cast<char>(random.below(3) ? 0x61 + random.below(4) : random.below(256));
    const std::string back = tiny().decode(tiny().encode(text, ControlTokens::as_text));
    std::string lossy, lossy_back;
    append_utf8_lossy(lossy, text);
    append_utf8_lossy(lossy_back, back);
    if (lossy == text) continue;  // UTF-8: normalised, see the golden tests
    bool latin = true;            // without combining marks nothing may change
    for (const char c : text) latin &= static_cast<unsigned char>(c) < 0xCC || static_cast<unsigned char>(c) > 0xCD;
    if (latin && text.find('\xE1') == std::string::npos) {
      EXPECT_EQ(back, text);
    }
  }
  EXPECT_EQ(tiny().decode(tiny().encode("a\xFFz\xE2\x82", ControlTokens::parse)), "a\xFFz\xE2\x82");
  EXPECT_EQ(tiny().decode_text(tiny().encode("a\xFFz\xE2\x82", ControlTokens::parse)), "a\uFFFDz\uFFFD");
}

TEST(Tokenizer, DecodeTakesAnyId) {
  EXPECT_EQ(tiny().decode(Ids{-1, 8192, INT32_MAX, INT32_MIN}), "");
  EXPECT_EQ(tiny().decode(Ids{8181, 8190}), "<|im_start|><think>");
  EXPECT_EQ(tiny().decode(Ids{8181, 8190}, SpecialTokens::skip), "<think>");  // not marked special
  EXPECT_TRUE(tiny().is_control(8190));
  EXPECT_FALSE(tiny().is_special(8190));
  EXPECT_FALSE(tiny().is_control(-5));
}

// Content that spells control tokens, in every kind of place.
TEST(Segments, ControlTokensInContentAreText) {
  for (int32_t control = 8180; control < 8192; ++control) {
    const std::string text(tiny().token_bytes(control));
    const std::vector<TextSegment> segments = {
        {"<|im_start|>user\n", false}, {"say " + text + "!", true}, {"<|im_end|>\n", false}};
    const Ids got = tiny().encode(segments);
    EXPECT_EQ(std::count_if(got.begin(), got.end(), [](int32_t id) { return tiny().is_control(id); }), 2) << text;
    EXPECT_EQ(tiny().decode(got), "<|im_start|>user\nsay " + text + "!<|im_end|>\n");
  }
  // Half in content, half in markup: not a control token either.
  const std::vector<TextSegment> halves = {{"<|im_", false}, {"end|>", true}, {"<|im_end", true}, {"|>", false}};
  for (const int32_t id : tiny().encode(halves)) EXPECT_FALSE(tiny().is_control(id));
}

TEST(Segments, WordsCrossBorders) {
  const std::string text = "<|im_start|>user\nHello the world's 12 e\u0301 \n\n x<|im_end|>";
  const Ids whole = tiny().encode(text, ControlTokens::parse);
  for (size_t a = 12; a + 10 <= text.size(); ++a) {
    for (size_t b = a; b + 10 <= text.size(); b += 3) {
      const std::vector<TextSegment> segments = {
          {text.substr(0, a), false}, {text.substr(a, b - a), true}, {text.substr(b), false}};
      EXPECT_EQ(tiny().encode(segments), whole) << a << " " << b;
    }
  }
}

TEST(Segments, BoundariesBetweenTokens) {
  const std::vector<TextSegment> segments = {{"<|im_start|>system\n", false},
                                         {"x<|im_end|>", true},
                                         {"<|im_end|>\n", false},
                                         {"<|im_start|>user\n", false, Boundary::system_end},
                                         {"he", true},
                                         {"llo", true, Boundary::message_end},  // inside a word: not between tokens
                                         {"<|im_end|>\n", false},
                                         {"<|im_start|>assistant\n", false, Boundary::generation_prompt}};
  std::vector<PromptBoundary> boundaries;
  const Ids all = tiny().encode(segments, &boundaries);
  ASSERT_EQ(boundaries.size(), 2u);
  EXPECT_EQ(boundaries[0].kind, Boundary::system_end);
  EXPECT_EQ(boundaries[1].kind, Boundary::generation_prompt);
  std::vector<TextSegment> first(segments.begin(), segments.begin() + 3);
  EXPECT_EQ(tiny().encode(first).size(), boundaries[0].n_ids);
  first.assign(segments.begin(), segments.begin() + 7);
  EXPECT_EQ(tiny().encode(first).size(), boundaries[1].n_ids);
  EXPECT_EQ(tiny().encode(std::span<const TextSegment>{}).size(), 0u);
}

// A megabyte of what is worst for one part or another. Work that grows with the square would not end in time.
TEST(Tokenizer, AMegabyteOfAnything) {
  const std::vector<std::string> words = {"a",
                                          " ",
                                          "\n",
                                          " \n",
                                          "1",
                                          "\u0301",
                                          "a\u0301\u0327\u0323",
                                          "<",
                                          "<|im",
                                          "the",
                                          "\r\n",
                                          "\xFF",
                                          "a\xFF",
                                          "\u4e2d",
                                          "\U0001F469\u200D",
                                          "ab",
                                          "'",
                                          "\t x",
                                          "\u1112\u1161\u11ab",
                                          "!\n",
                                          "<|im_end|>",
                                          "\u00a0",
                                          std::string(1, '\0')};
  for (const std::string& word : words) {
    std::string text;
    while (text.size() < 1'000'000) text += word;
    const Ids got = tiny().encode(text, ControlTokens::parse);
    EXPECT_GT(got.size(), 10'000u);
    EXPECT_LE(got.size(), text.size() * 2);
  }
  std::string marks;  // canonical ordering of one long run
  for (int i = 0; i < 250'000; ++i) marks += "\u0301";
  for (int i = 0; i < 250'000; ++i) marks += "\u0323";
  const std::string back = tiny().decode(tiny().encode(marks, ControlTokens::parse));
  EXPECT_EQ(back.size(), marks.size());
  EXPECT_EQ(back.substr(0, 2), "\u0323");
}

// A pattern that needs a quadratic or worse search is stopped by a bound, with an error that names it.
TEST(Tokenizer, HostilePatternIsStopped) {
  auto file = small_file();
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+b|a";
  const Tokenizer t = load(file);
  EXPECT_EQ(ids(t, "aab").size(), 2u);  // "a", "ab"
  try {
    ids(t, std::string(5000, 'a'));
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("pattern.Regex"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lily
