// Request bodies of every shape: read, or refused with the name of what is wrong; never a crash.
#include "text/messages.h"

#include "base/error.h"
#include "support.h"
#include "text/chat_template.h"
#include "text/json_text.h"

namespace lily {
namespace {

using json = nlohmann::ordered_json;

std::string error_of(const std::string& body) {
  try {
    parse_chat(json::parse(body));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "read";
}

TEST(Messages, ErrorsNameTheField) {
  const std::string user = R"({"role": "user", "content": "x"})";
  const std::vector<std::pair<std::string, std::string>> table = {
      {R"([])", "body"},
      {R"({})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": {"role": "user"}})", "messages"},
      {R"({"messages": ["hi"]})", "messages[0]"},
      {R"({"messages": [)" + user + R"(, {"role": "robot", "content": "d"}]})",
       "messages[1].role: unknown role 'robot'"},
      {R"({"messages": [{"content": "d"}]})", "messages[0].role"},
      {R"({"messages": [{"role": 5}]})", "messages[0].role"},
      {R"({"messages": [{"role": "function", "content": "d"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": {"text": "x"}}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [5]}]})", "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "poem", "x": 1}]}]})", "messages[0].content[0].type"},
      {R"({"messages": [)" + user +
           R"(, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]})",
       "messages[1].content[1]: this model is text-only"},
      {R"({"messages": [{"role": "system", "content": [{"image": "x"}]}]})", "text-only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})", "text-only"},
      {R"({"messages": [{"role": "assistant", "tool_calls": {}}]})", "messages[0].tool_calls"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [1]}]})", "messages[0].tool_calls[0]"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}]})",
       "messages[0].tool_calls[0].function"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {R"({"messages": [{"role": "assistant", "reasoning_content": 5}]})",
       "messages[0].reasoning_content: expected a string or null, found number"},
      {R"({"messages": [{"role": "assistant", "reasoning_content": ["x"]}]})", "messages[0].reasoning_content"},
      {R"({"messages": [)" + user + R"(], "tools": {}})", "tools"},
      {R"({"messages": [)" + user + R"(], "tools": [1]})", "tools[0]"},
      {R"({"messages": [)" + user + R"(], "tools": [{"type": "function", "function": {}}]})", "tools[0].function.name"},
      {R"({"messages": [)" + user + R"(], "enable_thinking": "no"})", "enable_thinking"},
      {R"({"messages": [)" + user + R"(], "chat_template_kwargs": 5})", "chat_template_kwargs"},
      {R"({"messages": [)" + user + R"(], "chat_template_kwargs": {"preserve_thinking": 1}})",
       "chat_template_kwargs.preserve_thinking"},
      {R"({"messages": [)" + user + R"(], "add_generation_prompt": 1})", "add_generation_prompt"},
      {R"({"messages": [)" + user + R"(], "reasoning_effort": "much"})", "reasoning_effort"},
      {R"({"messages": [)" + user + R"(], "thinking": {"type": "maybe"}})", "thinking.type"},
      {R"({"messages": [)" + user + R"(], "extra_body": {"enable_thinking": 3}})", "extra_body.enable_thinking"},
      {R"({"messages": [)" + user + R"(], "thinking": true})", "thinking: expected an object, found boolean"},
      {R"({"messages": [)" + user + R"(], "reasoning": "high"})", "reasoning: expected an object, found string"},
      {R"({"messages": [)" + user + R"(], "extra_body": {"thinking": []}})", "extra_body.thinking: expected an object"},
      {R"({"messages": [{"role": "user", "content": [{"type": "poem", "text": "x"}]}]})", "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": 5, "text": "x"}]}]})", "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]})", "messages[0].images: this model is text-only"},
      {R"({"messages": [{"role": "tool", "content": "x", "tool_call_id": 5}]})", "messages[0].tool_call_id"},
      {R"({"messages": [{"role": "assistant", "refusal": 5}]})", "messages[0].refusal"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}]})",
       "messages[0].tool_calls[0].id"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"type": 5, "function": {"name": "f"}}]}]})",
       "messages[0].tool_calls[0].type"},
      {R"({"messages": [)" + user + R"(], "tools": [{"function": 5, "name": "f"}]})", "tools[0].function: expected an object"},
      {R"({"messages": [)" + user + R"(], "tools": [{"function": {"name": "f", "description": 5}}]})",
       "tools[0].function.description"},
      {R"({"messages": [)" + user + R"(], "tools": [{"function": {"name": "f", "strict": "yes"}}]})",
       "tools[0].function.strict"},
  };
  for (const auto& [body, named] : table)
    EXPECT_NE(error_of(body).find(named), std::string::npos) << body << "\n" << error_of(body);
  EXPECT_EQ(error_of(R"({"messages": [)" + user + R"(], "tools": null, "chat_template_kwargs": null})"), "read");
}

// What is no schema where a tool's parameters should be, and the path that the refusal begins with.
TEST(Messages, ParametersThatAreNoSchemaAreRefusedByPath) {
  const auto refusal = [](const std::string& parameters) {
    return error_of(R"({"messages": [{"role": "user"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": )" +
                    parameters + "}}]}");
  };
  const std::string root = "tools[0].function.parameters";
  const std::pair<const char*, const char*> wrong[] = {
      {R"("x")", ""},
      {"5", ""},
      {"[]", ""},
      {"true", ""},
      {R"({"type": 5})", ".type"},
      {R"({"type": ["object", 5]})", ".type[1]"},
      {R"({"type": "string"})", ".type"},
      {R"({"properties": []})", ".properties"},
      {R"({"properties": {"city": "string"}})", ".properties.city"},
      {R"({"properties": {"city": {"type": {}}}})", ".properties.city.type"},
      {R"({"properties": {"a": {"items": 5}}})", ".properties.a.items"},
      {R"({"properties": {"a": {"items": [{}, 5]}}})", ".properties.a.items[1]"},
      {R"({"properties": {"a": {"anyOf": {}}}})", ".properties.a.anyOf"},
      {R"({"properties": {"a": {"oneOf": [{"type": "null"}, {"enum": "x"}]}}})", ".properties.a.oneOf[1].enum"},
      {R"({"properties": {"a": {"$ref": 5}}})", ".properties.a.$ref"},
      {R"({"$defs": {"a": []}})", ".$defs.a"},
      {R"({"additionalProperties": "no"})", ".additionalProperties"},
      {R"({"required": "city"})", ".required"},
      {R"({"required": ["a", 1]})", ".required[1]"},
      {R"({"properties": {"no word: ": {"type": 5}}})", ".properties"},  // the path ends where it would be unreadable
  };
  for (const auto& [parameters, path] : wrong)
    EXPECT_TRUE(refusal(parameters).starts_with(root + path + ": expected ")) << parameters << "\n" << refusal(parameters);
  for (const char* right :
       {"null", "{}", R"({"type": "object", "properties": null, "required": null})", R"({"type": ["object", "null"]})",
        R"({"properties": {"a": true, "b": {"type": ["string", "null"], "enum": ["x", null], "default": 5}}})",
        R"({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"type": "integer"}, "minItems": 1}}})",
        R"({"properties": {"type": {"type": "string"}, "required": {"type": "array", "items": false}}, "required": ["type"]})",
        R"({"properties": {"a": {"type": "string", "required": true}}, "additionalProperties": false, "x-more": 5})"})
    EXPECT_EQ(refusal(right), "read") << right;
  const ChatInput input = parse_chat(json::parse(R"({"messages": [{"role": "user"}], "tools": [{"type": "function",
    "function": {"name": "f", "strict": true, "parameters": {"properties": {"a": {"type": "banana"}, "b": {"type": ["string", "x"]}}}}}]})"));
  EXPECT_EQ(input.ignored, (std::vector<std::string>{root + ".properties.a.type", "tools.function.strict"}));
}

TEST(Messages, WhatHasNoEffectIsListed) {
  const ChatInput input = parse_chat(json::parse(R"({"messages": [
    {"role": "user", "content": "x", "name": "bob", "cache_control": {}}, {"role": "user", "content": "x", "name": "bob"},
    {"role": "assistant", "content": "x", "reasoning": {"a": 1}, "audio": null}],
    "chat_template_kwargs": {"enable_thinking": false, "foo": 1}, "temperature": 1, "stop": null, "n": 1,
    "extra_body": {"enable_thinking": false, "top_k": 1}})"));
  EXPECT_EQ(input.ignored, (std::vector<std::string>{"messages.name", "messages.cache_control", "messages.reasoning",
                                                     "chat_template_kwargs.foo"}));
  EXPECT_EQ(input.unread, (std::vector<std::string>{"temperature", "n", "extra_body.top_k"}));
}

TEST(Messages, ContentInEveryShape) {
  const ChatInput input = parse_chat(json::parse(R"({"messages": [
    {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "input_text", "text": "two"}, {"text": " three"}, " four"]},
    {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},
    {"role": "tool", "content": [], "tool_call_id": "t1"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, {"role": "user"}]})"));
  ASSERT_EQ(input.messages.size(), 5u);
  EXPECT_EQ(input.messages[0].content, "one two three four");
  EXPECT_EQ(input.messages[1].tool_calls,
            (std::vector<PastToolCall>{{"", "f", {{"a", "1", ToolArgument::Kind::scalar}}}}));
  EXPECT_EQ(input.messages[2].tool_call_id, "t1");
  EXPECT_EQ(input.messages[3].content, "no");
  EXPECT_EQ(input.messages[4].content, "");
}

TEST(Messages, ReasoningUnderTheOtherNameWhereOneIsEmpty) {
  for (const char* names : {R"("reasoning_content": "", "reasoning": "R")", R"("reasoning": "R")",
                            R"("reasoning_content": "R", "reasoning": "")", R"("reasoning_content": "R", "reasoning": "other")"}) {
    const ChatInput input = parse_chat(json::parse(std::string(R"({"messages": [{"role": "assistant", )") + names + "}]}"));
    EXPECT_EQ(input.messages[0].reasoning, "R") << names;
  }
}

// ---- random bodies: a good one with values exchanged, dropped, doubled and nested ----

json random_value(test::Random& random, int depth) {
  switch (random.below(depth > 3 ? 7 : 9)) {
    case 0:
      return nullptr;
    case 1:
      return random.below(2) == 0;
    case 2:
      return static_cast<int64_t>(random.next());
    case 3:
      return 1.5 * static_cast<double>(random.below(1000));
    case 4:
      return std::string("<|im_end|>\xFF\x00</think>", random.below(22));
    case 5:
      return "system";
    case 6:
      return json::binary({1, 2, 3});
    case 7: {
      json list = json::array();
      for (size_t n = random.below(4); n > 0; --n) list.push_back(random_value(random, depth + 1));
      return list;
    }
    default: {
      static constexpr const char* kKeys[] = {"role",     "content", "type",      "text",
                                              "function", "name",    "arguments", "tools"};
      json object = json::object();
      for (size_t n = random.below(4); n > 0; --n) object[kKeys[random.below(8)]] = random_value(random, depth + 1);
      return object;
    }
  }
}

void mutate(json& value, test::Random& random) {
  if (value.is_structured() && !value.empty() && random.below(5) != 0) {
    auto it = value.begin();
    std::advance(it, random.below(value.size()));
    return mutate(*it, random);
  }
  switch (random.below(4)) {
    case 0:
      value = random_value(random, 0);
      break;
    case 1:
      value = json::array({value, value});
      break;
    case 2:
      value = json{{"type", "text"}, {"text", value}};
      break;
    default:
      value = nullptr;
  }
}

TEST(Messages, RandomShapesNeverCrash) {
  const json good = json::parse(R"({"messages": [
    {"role": "system", "content": "s"}, {"role": "developer", "content": [{"type": "text", "text": "d"}]},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [true]}}},
      {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "t"}, {"role": "assistant", "content": "<think>x</think>y"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "chat_template_kwargs": {"enable_thinking": false, "preserve_thinking": true, "x": 1},
    "reasoning": {"effort": "low"}, "thinking": {"type": "enabled"}, "extra_body": {"enable_thinking": true},
    "add_generation_prompt": true})");
  test::Random random(4);
  int read = 0, refused = 0;
  for (int round = 0; round < 30'000; ++round) {
    json body = good;
    for (size_t n = 1 + random.below(3); n > 0; --n) mutate(body, random);
    try {
      const ChatInput input = parse_chat(body);
      for (const auto style : {TemplateStyle::qwen3_5, TemplateStyle::qwen3_6}) render_chat(input, style);
      ++read;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()), "");
      ++refused;
    }
  }
  EXPECT_GT(read, 3000);
  EXPECT_GT(refused, 3000);
}

TEST(Messages, RandomTextNeverCrashes) {
  const std::string good =
      R"({"messages": [{"role": "user", "content": "hello é"}], "tools": [{"function": {"name": "f"}}]})";
  test::Random random(6);
  for (int round = 0; round < 20'000; ++round) {
    std::string body = good;
    for (size_t n = 1 + random.below(3); n > 0; --n)
      body[random.below(body.size())] = static_cast<char>(random.below(256));
    try {
      parse_chat_text(body);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    }
  }
  EXPECT_THROW(parse_chat_text(std::string(100'000, '[')), Error);
}

// Nested deeper than any request may be: an error, not a stack overflow.
TEST(Messages, DeepNestingIsAnError) {
  json deep = 1;
  for (int i = 0; i < 5000; ++i) {
    json outer = json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  json body =
      json::parse(R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f"}}]})");
  body["tools"][0]["function"]["parameters"] = std::move(deep);
  EXPECT_THROW(parse_chat(body), Error);
}

}  // namespace
}  // namespace lily
