#include "server/answer_text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace lily::server {
namespace {

using Json = nlohmann::ordered_json;

const Tokenizer& tokenizer() {
  static const Tokenizer t = Tokenizer::load(LILY_SOURCE_DIR "/models/tiny");
  return t;
}

struct Outcome {
  std::string reasoning, content, reason;
  std::vector<std::string> calls;  // name and arguments
  bool operator==(const Outcome&) const = default;
};

/// The same answer twice: as the pieces add up, and as it stands at the end.
struct Both {
  Outcome streamed, whole;
};

Both run(AnswerTextOptions options, const std::vector<std::int32_t>& ids, Finish finish) {
  AnswerText text(tokenizer(), std::move(options));
  Both b;
  const auto take = [&](const TextDelta& d) {
    b.streamed.reasoning += d.reasoning;
    b.streamed.content += d.content;
    for (const ToolEvent& e : d.calls) {
      if (e.kind == ToolEvent::Kind::call_begin) b.streamed.calls.push_back(e.text + " ");
      if (e.kind == ToolEvent::Kind::arguments) b.streamed.calls.back() += e.text;
    }
  };
  for (const std::int32_t id : ids) {
    if (text.complete()) break;
    take(text.push(id));
  }
  take(text.finish(finish));
  b.whole = {text.reasoning(), text.content(), text.finish_reason(), {}};
  for (const Call& c : text.calls()) b.whole.calls.push_back(c.name + " " + c.arguments);
  b.streamed.reason = b.whole.reason;
  return b;
}

/// Tokens of one character each, which is the finest cut there is.
std::vector<std::int32_t> characters(const std::string& text) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (at < text.size()) {
    for (const char* tag : {"<tool_call>", "</tool_call>", "</think>", "<think>"}) {
      if (text.compare(at, std::strlen(tag), tag) != 0) continue;
      ids.push_back(*tokenizer().id_of(tag));
      at += std::strlen(tag);
    }
    if (at >= text.size()) break;
    for (const std::int32_t id : tokenizer().encode(text.substr(at, 1), ControlTokens::as_text)) ids.push_back(id);
    ++at;
  }
  return ids;
}

AnswerTextOptions options(bool thinking, std::vector<std::string> stop = {}) {
  const Json tools = {{{"type", "function"}, {"function", {{"name", "look"}, {"parameters", {{"type", "object"}, {"properties", {{"n", {{"type", "integer"}}}, {"s", {{"type", "string"}}}}}}}}}}};
  return {.raw = false, .thinking = thinking, .tools = ToolSchemas(tools), .calls = true, .parallel = true, .stop = std::move(stop)};
}

const std::string kCall = "<tool_call>\n<function=look>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\nEND of it\n</parameter>\n</function>\n</tool_call>";

TEST(AnswerText, StreamAndWholeAreEqualHoweverTheTokensFall) {
  struct Case {
    const char* name;
    bool thinking;
    std::string text;
    std::vector<std::string> stop;
    Finish finish;
    Outcome expected;
  };
  const std::vector<Case> cases = {
      {"plain", false, "Good day.", {}, Finish::end_token, {"", "Good day.", "stop", {}}},
      {"cut", false, "Good day.", {}, Finish::length, {"", "Good day.", "length", {}}},
      {"thinking", true, "hm, so\n</think>\n\nGood day.", {}, Finish::end_token, {"hm, so", "Good day.", "stop", {}}},
      {"cut while thinking", true, "hm, so", {}, Finish::length, {"hm, so", "", "length", {}}},
      {"stop", false, "one two three", {"two"}, Finish::end_token, {"", "one ", "stop", {}}},
      {"no stop in the thinking", true, "END it\n</think>\n\nwell END of it", {"END"}, Finish::end_token, {"END it", "well ", "stop", {}}},
      {"a call", false, kCall, {}, Finish::end_token, {"", "", "tool_calls", {R"(look {"n": 3, "s": "END of it"})"}}},
      {"no stop in arguments", false, "I look.\n" + kCall, {"END"}, Finish::end_token, {"", "I look.", "tool_calls", {R"(look {"n": 3, "s": "END of it"})"}}},
      {"thinking and two calls", true, "let us\n</think>\n\n" + kCall + "\n" + kCall, {}, Finish::end_token,
       {"let us", "", "tool_calls", {R"(look {"n": 3, "s": "END of it"})", R"(look {"n": 3, "s": "END of it"})"}}},
      {"umlauts", false, "\xC3\xA4\xC3\xB6 \xF0\x9F\x98\x80!", {"\xF0\x9F\x98\x80"}, Finish::end_token, {"", "\xC3\xA4\xC3\xB6 ", "stop", {}}},
      {"half a stop at the end", false, "go on st", {"stop"}, Finish::end_token, {"", "go on st", "stop", {}}},
      {"a tag that is none", false, "a <tool b </think", {}, Finish::end_token, {"", "a <tool b </think", "stop", {}}},
  };
  for (const Case& c : cases) {
    for (const auto& ids : {characters(c.text), tokenizer().encode(c.text, ControlTokens::parse)}) {
      const Both got = run(options(c.thinking, c.stop), ids, c.finish);
      EXPECT_EQ(got.streamed, got.whole) << c.name;
      EXPECT_EQ(got.whole.reasoning, c.expected.reasoning) << c.name;
      EXPECT_EQ(got.whole.content, c.expected.content) << c.name;
      EXPECT_EQ(got.whole.reason, c.expected.reason) << c.name;
      ASSERT_EQ(got.whole.calls.size(), c.expected.calls.size()) << c.name;
      for (std::size_t i = 0; i < got.whole.calls.size(); ++i) {
        const auto space = c.expected.calls[i].find(' ');
        EXPECT_EQ(Json::parse(got.whole.calls[i].substr(space)), Json::parse(c.expected.calls[i].substr(space))) << c.name;
      }
    }
  }
}

TEST(AnswerText, ACallThatIsCutIsNoCall) {
  const std::string text = kCall.substr(0, kCall.find("END"));
  const Both got = run(options(false), characters(text), Finish::length);
  EXPECT_TRUE(got.whole.calls.empty());
  EXPECT_EQ(got.whole.reason, "length");
}

TEST(AnswerText, OneCallIsEnoughWithoutParallelCalls) {
  AnswerTextOptions o = options(false);
  o.parallel = false;
  const Both got = run(std::move(o), characters(kCall + "\n" + kCall), Finish::end_token);
  EXPECT_EQ(got.whole.calls.size(), 1u);
  EXPECT_EQ(got.whole.reason, "tool_calls");
}

TEST(AnswerText, RawTextIsAllContent) {
  AnswerTextOptions o;
  o.raw = true;
  const std::string text = "<think>\nx\n</think>\n" + kCall;
  EXPECT_EQ(run(std::move(o), characters(text), Finish::end_token).whole.content, text);
}

}  // namespace
}  // namespace lily::server
