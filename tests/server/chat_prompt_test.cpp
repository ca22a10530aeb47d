#include "server/chat_prompt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lily::server {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

const Tokenizer& tokenizer() {
  static const Tokenizer t = Tokenizer::load(LILY_SOURCE_DIR "/models/tiny");
  return t;
}

struct Rig {
  TurnMemory turns{1 << 20};
  PromptMaker maker;
  explicit Rig(PromptMaker::Options options = {}) : maker(tokenizer(), turns, std::move(options)) {}
  ChatPrompt make(const Json& body) {
    ChatInput input = parse_chat(body);
    return maker.make(input);
  }
  /// As if the model had written `text` to `body`, in tokens that no encoder would choose: one a character.
  Ids answer(const Json& body, const std::string& text, const Json& message, const std::string& reasoning = "") {
    ChatInput input = parse_chat(body);
    const ChatPrompt prompt = maker.make(input);
    Ids ids;
    for (const char c : text) {
      const Ids one = tokenizer().encode(std::string(1, c), ControlTokens::as_text);
      ids.insert(ids.end(), one.begin(), one.end());
    }
    const ChatInput said = parse_chat({{"messages", Json::array({message})}});
    turns.remember(turn_key(input, said.messages[0]), {.prompt = prompt.ids, .generated = ids, .reasoning = reasoning});
    Ids all = prompt.ids;
    all.insert(all.end(), ids.begin(), ids.end());
    return all;
  }
};

bool begins(const Ids& ids, const Ids& beginning) {
  return ids.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), ids.begin());
}

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
Json tool_result(const std::string& text) { return {{"role", "tool"}, {"content", text}, {"tool_call_id", "x"}}; }
Json call(const std::string& arguments) {
  return {{"role", "assistant"},
          {"content", nullptr},
          {"tool_calls", {{{"id", "c"}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", arguments}}}}}}};
}

TEST(ChooseSnapshots, BoundariesThatMatterAndNoMoreThanTheSpacingAllows) {
  const std::vector<PromptBoundary> b = {{Boundary::system_end, 100}, {Boundary::message_end, 150},  {Boundary::message_end, 900},
                                         {Boundary::message_end, 1500}, {Boundary::message_end, 1520}, {Boundary::generation_prompt, 1600}};
  EXPECT_EQ(choose_snapshots(b, 1605, 700), (std::vector<std::int64_t>{100, 900, 1520, 1600}));
  EXPECT_EQ(choose_snapshots({}, 5000, 1000), (std::vector<std::int64_t>{1000, 2000, 3000, 4000}));
  EXPECT_EQ(choose_snapshots({}, 50, 1000), (std::vector<std::int64_t>{50}));
  // A long message is cut on the way.
  EXPECT_EQ(choose_snapshots({{Boundary::system_end, 10}, {Boundary::generation_prompt, 3500}}, 3505, 1000),
            (std::vector<std::int64_t>{10, 1010, 2010, 3500}));
}

TEST(PromptMaker, ARememberedTurnStandsInForItsRenderingWithPreserveThinking) {
  Rig rig;
  Json body = {{"messages", Json::array({user("hello")})}, {"preserve_thinking", true}};
  Json said = {{"role", "assistant"}, {"content", "good day"}, {"reasoning_content", "they greet"}};
  const Ids before = rig.answer(body, "they greet\n</think>\n\ngood day", said, "they greet");
  body["messages"].push_back(said);
  body["messages"].push_back(user("and now?"));
  const ChatPrompt next = rig.make(body);
  EXPECT_TRUE(begins(next.ids, before));
  // The boundaries moved along: the last ones lie behind the turn.
  EXPECT_GT(next.snapshot_at.back(), std::int64_t(before.size()));
  EXPECT_LT(next.snapshot_at.back(), std::int64_t(next.ids.size()));
  // Another reasoning is another turn.
  body["messages"][1]["reasoning_content"] = "they are rude";
  EXPECT_FALSE(begins(rig.make(body).ids, before));
}

TEST(PromptMaker, InsideAToolLoopDroppedReasoningComesBackAndSpacesInArgumentsDoNotMatter) {
  const std::string written = "let us look\n</think>\n\n<tool_call>\n<function=look>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
  const Json tools = {{{"type", "function"}, {"function", {{"name", "look"}, {"parameters", {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}}}}}}};
  for (const bool restore : {true, false}) {
    Rig rig({.restore_reasoning = restore});
    Json body = {{"messages", Json::array({user("what is there?")})}, {"tools", tools}};
    const Ids before = rig.answer(body, written, call(R"({"a": 1})"), "let us look");
    body["messages"].push_back(call(R"({"a":1})"));  // no reasoning, no space
    body["messages"].push_back(tool_result("nothing"));
    EXPECT_EQ(begins(rig.make(body).ids, before), restore);
    // With another value the call is another one.
    body["messages"][1] = call(R"({"a":2})");
    EXPECT_FALSE(begins(rig.make(body).ids, before));
    // After the next question the template leaves the reasoning out, and nothing is put in its place.
    body["messages"][1] = call(R"({"a":1})");
    body["messages"].push_back({{"role", "assistant"}, {"content", "nothing"}});
    body["messages"].push_back(user("thanks"));
    EXPECT_FALSE(begins(rig.make(body).ids, before));
  }
}

TEST(PromptMaker, AnotherConversationWithTheSameAnswerIsNotMixedUp) {
  Rig rig;
  Json said = {{"role", "assistant"}, {"content", "yes"}, {"reasoning_content", "hm"}};
  Json one = {{"messages", Json::array({user("is it one?")})}, {"preserve_thinking", true}};
  rig.answer(one, "hm\n</think>\n\nyes", said, "hm");
  Json other = {{"messages", Json::array({user("is it two?"), said, user("sure?")})}, {"preserve_thinking", true}};
  Rig fresh;
  EXPECT_EQ(rig.make(other).ids, fresh.make(other).ids);
}

TEST(PromptMaker, VolatileLinesOfTheSystemMessageAreLeftOut) {
  Rig rig({.volatile_lines = {"x-checksum:", "cch=[0-9]+"}});
  Rig plain;
  const auto body = [](const std::string& system) {
    return Json{{"messages", {{{"role", "system"}, {"content", system}}, user("hi x-checksum: 3")}}};
  };
  EXPECT_EQ(rig.make(body("x-checksum: 1f\nBe brief.\ncch=77 z\nx-check")).ids, plain.make(body("Be brief.\nx-check")).ids);
  EXPECT_EQ(rig.make(body("Say x-checksum: now")).ids, plain.make(body("Say x-checksum: now")).ids);  // not at the line's beginning
  EXPECT_THROW(Rig({.volatile_lines = {"("}}), Error);
}

TEST(TurnMemory, ForgetsTheOldestBeyondItsBytes) {
  TurnMemory memory(1000);
  for (int i = 0; i < 10; ++i) memory.remember(std::to_string(i), {.prompt = Ids(50, i), .generated = {}, .reasoning = {}});
  EXPECT_LE(memory.bytes(), 1000);
  EXPECT_TRUE(memory.find("9"));
  EXPECT_FALSE(memory.find("0"));
  memory.remember("9", {.prompt = {1}, .generated = {}, .reasoning = {}});
  EXPECT_EQ(memory.find("9")->prompt, Ids{1});
}

}  // namespace
}  // namespace lily::server
