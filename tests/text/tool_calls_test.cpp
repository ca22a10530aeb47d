// Tool calls in the text of a model: the same in every chunking, values exact.
#include "text/tool_calls.h"

#include <set>

#include "support.h"
#include "text/chat_template.h"
#include "text/json_text.h"
#include "text/output_parser.h"

namespace lily {
namespace {

using json = nlohmann::ordered_json;

const json& tools() {
  static const json list = json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
      "$defs": {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
      "properties": {
        "s": {"type": "string"}, "t": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"},
        "b": {"type": "boolean"}, "o": {"type": "object"}, "a": {"type": "array", "items": {}},
        "any_int": {"anyOf": [{"type": "integer"}, {"type": "integer"}]},
        "maybe_s": {"type": ["string", "null"]}, "maybe_i": {"type": "integer", "nullable": true},
        "e": {"enum": ["1", "two"]}, "ei": {"enum": [1, 2]}, "ref": {"$ref": "#/$defs/Count"},
        "loop": {"$ref": "#/$defs/Loop"}, "u": {}, "so": {"type": ["string", "object"]},
        "all": {"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]}, "c": {"const": true}}}}},
    {"type": "function", "function": {"name": "g"}},
    {"name": "flat", "input_schema": {"properties": {"i": {"type": "integer"}}}}
  ])");
  return list;
}

struct Call {
  std::string name, arguments;
  bool complete = false;
  bool operator==(const Call&) const = default;
};

struct Result {
  std::string text;
  std::vector<Call> calls;
  bool operator==(const Result&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Result& r) {
  out << "text=" << json(r.text);
  for (const Call& c : r.calls) out << " " << c.name << c.arguments << (c.complete ? "" : " (open)");
  return out;
}

struct Outcome {
  Result result;
  std::vector<ToolEvent> events;
  int completed = 0;
};

Outcome run(const std::vector<std::string>& pieces, TextEnd end = TextEnd::complete,
            ToolCallParser::Options options = {}) {
  ToolCallParser parser{ToolSchemas(tools()), options};
  Outcome run;
  std::set<std::string> ids;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const ToolEvent& e : events) {
      run.events.push_back(e);
      auto& calls = run.result.calls;
      if (e.kind == ToolEvent::Kind::text) {
        run.result.text += e.text;
        continue;
      }
      if (e.kind == ToolEvent::Kind::call_begin) {
        EXPECT_EQ(e.index, static_cast<int>(calls.size()));
        EXPECT_TRUE(ids.insert(e.id).second) << e.id;
        calls.push_back({e.text, "", false});
        continue;
      }
      ASSERT_EQ(e.index + 1, static_cast<int>(calls.size()));
      calls.back().arguments += e.text;
      if (e.kind == ToolEvent::Kind::call_end) {
        calls.back().complete = true;
        EXPECT_TRUE(json::accept(calls.back().arguments)) << calls.back().arguments;
      }
    }
  };
  for (const std::string& piece : pieces) take(parser.push(piece));
  take(parser.finish(end));
  run.completed = parser.completed_calls();
  int complete = 0;
  for (const Call& call : run.result.calls) complete += call.complete;
  EXPECT_EQ(run.completed, complete);
  return run;
}

std::vector<std::string> single_bytes(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  return pieces;
}

// The result of the whole text, after checking that every cut in two, single bytes and random cuts give the same.
Result parse(const std::string& text, TextEnd end = TextEnd::complete) {
  const Result whole = run({text}, end).result;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(run({text.substr(0, cut), text.substr(cut)}, end).result, whole) << "cut at " << cut << " of " << text;
  }
  EXPECT_EQ(run(single_bytes(text), end).result, whole) << text;
  test::Random random(text.size());
  for (int round = 0; round < 5; ++round) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random.below(9)));
      at += pieces.back().size();
    }
    EXPECT_EQ(run(pieces, end).result, whole) << text;
  }
  return whole;
}

std::string call_text(const std::string& name, const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : parameters) text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

std::string one_argument(const std::string& key, const std::string& raw) {
  const Result r = parse(call_text("f", {{key, raw}}));
  EXPECT_EQ(r.calls.size(), 1u) << raw;
  if (r.calls.size() != 1) return "";
  EXPECT_EQ(r.text, "");
  EXPECT_TRUE(r.calls[0].complete);
  return r.calls[0].arguments;
}

TEST(ToolCalls, PlainTextPasses) {
  for (const std::string text : {"hello", "a < b", "<", "x\n\n", "<tool", "</tool_call>", "<tool_call", "\n a",
                                 "<tool_call>", "<tool_call> no", "a <b> </b>\n", "<function=f>", "<parameter=a>"}) {
    EXPECT_EQ(parse(text), (Result{text, {}}));
  }
}

TEST(ToolCalls, OneCallAndText) {
  EXPECT_EQ(parse("Let me look.\n\n" + call_text("f", {{"s", "x"}, {"i", "2"}})),
            (Result{"Let me look.", {{"f", R"({"s": "x", "i": 2})", true}}}));
  EXPECT_EQ(parse(call_text("g", {})), (Result{"", {{"g", "{}", true}}}));
  EXPECT_EQ(parse("\n\n" + call_text("g", {}) + "\n"), (Result{"", {{"g", "{}", true}}}));
  EXPECT_EQ(parse(call_text("g", {}) + "\nafter"), (Result{"\nafter", {{"g", "{}", true}}}));
}

TEST(ToolCalls, ParallelCalls) {
  const std::string text =
      call_text("f", {{"s", "1"}}) + "\n" + call_text("f", {{"s", "2"}}) + "\n" + call_text("g", {});
  EXPECT_EQ(parse(text), (Result{"", {{"f", R"({"s": "1"})", true}, {"f", R"({"s": "2"})", true}, {"g", "{}", true}}}));
  const Outcome one = run({text}, TextEnd::complete, {true, false});
  EXPECT_EQ(one.result, (Result{"", {{"f", R"({"s": "1"})", true}}}));
  EXPECT_EQ(one.completed, 1);
}

TEST(ToolCalls, Disabled) {
  const std::string text = "a\n" + call_text("f", {{"s", "1"}});
  EXPECT_EQ(run({text}, TextEnd::complete, {false, true}).result, (Result{text, {}}));
}

TEST(ToolCalls, TypesBySchema) {
  const std::vector<std::tuple<std::string, std::string, std::string>> table = {
      {"s", "007", R"("007")"},
      {"s", "true", R"("true")"},
      {"s", "null", R"("null")"},
      {"s", "{}", R"("{}")"},
      {"s", "", R"("")"},
      {"i", "130", "130"},
      {"i", "230.0", "230"},
      {"i", "1e3", "1000"},
      {"i", "-0", "0"},
      {"i", "007", "7"},
      {"i", "2.5", R"("2.5")"},
      {"i", "2024-01-02", R"("2024-01-02")"},
      {"i", "", R"("")"},
      {"i", " 5 ", "5"},
      {"i", "1e999", R"("1e999")"},
      {"i", "123456789012345678901234567890", "123456789012345678901234567890"},
      {"n", "1.50", "1.50"},
      {"n", "-3", "-3"},
      {"n", "NaN", R"("NaN")"},
      {"n", ".5", "0.5"},
      {"n", "+007.e2", "7e2"},
      {"n", "-.0", "-0.0"},
      {"n", "1e999", R"("1e999")"},
      {"n", "x", R"("x")"},
      {"b", "true", "true"},
      {"b", "False", "false"},
      {"b", "yes", R"("yes")"},
      {"o", R"({"a": 1.0, "b": [true]})", R"({"a": 1.0, "b": [true]})"},
      {"o", "{bad", R"("{bad")"},
      {"o", "[1]", R"("[1]")"},
      {"a", "[1, \"x\"]", R"([1, "x"])"},
      {"a", "{}", R"("{}")"},
      {"any_int", "130", "130"},
      {"maybe_s", "null", "null"},
      {"maybe_s", "nullable", R"("nullable")"},
      {"maybe_s", "n", R"("n")"},
      {"maybe_i", "null", "null"},
      {"maybe_i", "None", "null"},
      {"maybe_i", "3", "3"},
      {"e", "1", R"("1")"},
      {"ei", "1", "1"},
      {"ref", "5.0", "5"},
      {"loop", "5", R"("5")"},
      {"u", "5", R"("5")"},
      {"u", "{\"k\": 1}", R"({"k": 1})"},
      {"u", "[1,", R"("[1,")"},
      {"u", " [1]", "[1]"},
      {"so", "{}", "{}"},
      {"so", "5", R"("5")"},
      {"all", "6", "6"},
      {"c", "true", "true"},
      {"unheard_of", "12", R"("12")"}};
  for (const auto& [key, raw, expected] : table) {
    EXPECT_EQ(one_argument(key, raw), "{\"" + key + "\": " + expected + "}") << key << " " << raw;
  }
  EXPECT_EQ(parse(call_text("flat", {{"i", "3"}})).calls[0].arguments, R"({"i": 3})");
}

// No value here ends in a lone '\r': before the newline of the markup it cannot be told from "\r\n".
std::vector<std::string> nasty_values() {
  const std::string example = call_text("f", {{"s", "1"}, {"t", "2"}});
  std::vector<std::string> values = {"</parameter>",
                                     "x</parameter>y",
                                     "</function>",
                                     "</tool_call>",
                                     "<tool_call>",
                                     "a </parameter> b",
                                     "a\n</parameter>\nb",
                                     "</parameter",
                                     "<",
                                     "</",
                                     "\n",
                                     "\n\n",
                                     "\r\n",
                                     "",
                                     " ",
                                     "\t",
                                     "    indented\n",
                                     "\nlead",
                                     "trail\n",
                                     "\xC2\xA0x\xC2\xA0",
                                     "a\r\nb\r\n",
                                     "\rx",
                                     "<parameter=s>",
                                     "<parameter=",
                                     "<function=f>",
                                     "<function=",
                                     example,
                                     "see:\n" + example,
                                     example + "\nas shown",
                                     example + "\n" + example,
                                     "</parameter>\n</function>\n</tool_call>",
                                     "</function>\n</tool_call>\nmore",
                                     "<tool_call>\n<function=g>\n</function>\n</tool_call>",
                                     "```\n" + example + "\n```",
                                     "if (s.starts_with(\"</parameter>\")) {\n  return \"</function>\";\n}\n",
                                     "<a><b></b></a>",
                                     "1 < 2 && 3 > 2",
                                     "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xE6\x97\xA5\xE6\x9C\xAC",
                                     "\"quoted\" \\ \b\f\x01",
                                     "<think>x</think>",
                                     "</tool_call>\n",
                                     "</function>",
                                     "x\n</function>\ny",
                                     "<|im_end|>",
                                     "</parameter>\n\n</parameter>",
                                     "null",
                                     "{}",
                                     "[1]",
                                     "<parameter=s>\nx\n</parameter>",
                                     "\n\n\n</parameter>\n\n\n"};
  return values;
}

TEST(ToolCalls, NastyValuesArriveWhole) {
  ASSERT_GE(nasty_values().size(), 50u);
  for (const std::string& value : nasty_values()) {
    EXPECT_EQ(one_argument("s", value), python_json(json{{"s", value}})) << value;
  }
}

TEST(ToolCalls, NastyValuesBetweenOthers) {
  for (const std::string& value : nasty_values()) {
    const std::string text = call_text("f", {{"i", "1"}, {"s", value}, {"u", "[2]"}}) + "\n" + call_text("g", {});
    const std::string expected = R"({"i": 1, "s": )" + python_json(value) + R"(, "u": [2]})";
    EXPECT_EQ(parse(text), (Result{"", {{"f", expected, true}, {"g", "{}", true}}})) << value;
  }
}

// What the chat template writes, the parser reads back.
TEST(ToolCalls, RoundTripThroughTheTemplate) {
  for (const std::string& value : nasty_values()) {
    const json arguments = {{"s", value}, {"i", 5}, {"o", {{"k", value}}}, {"a", {1, 2.5, nullptr}}, {"b", false}};
    const json body = {
        {"messages",
         {{{"role", "user"}, {"content", "x"}},
          {{"role", "assistant"}, {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}}}}},
        {"add_generation_prompt", false}};
    const std::string prompt = render_chat(parse_chat(body), TemplateStyle::qwen3_6).text();
    const size_t begin = prompt.find("<tool_call>");
    const size_t end = prompt.rfind("<|im_end|>");
    const Result r = run({prompt.substr(begin, end - begin)}).result;
    ASSERT_EQ(r.calls.size(), 1u) << value;
    EXPECT_EQ(r.calls[0].arguments, python_json(arguments));
  }
}

TEST(ToolCalls, OneNewlineOnEachSideIsMarkup) {
  const auto raw = [](const std::string& inner) {
    return parse("<tool_call>\n<function=f>\n<parameter=s>" + inner + "</parameter>\n</function>\n</tool_call>")
        .calls.at(0)
        .arguments;
  };
  EXPECT_EQ(raw("x"), R"({"s": "x"})");
  EXPECT_EQ(raw("\nx\n"), R"({"s": "x"})");
  EXPECT_EQ(raw("\r\nx\r\n"), R"({"s": "x"})");
  EXPECT_EQ(raw("\n\nx\n\n"), R"({"s": "\nx\n"})");
  EXPECT_EQ(raw("\r\n\r\nx\r\n\r\n"), R"({"s": "\r\nx\r\n"})");
  EXPECT_EQ(raw("\n"), R"({"s": ""})");
  EXPECT_EQ(raw(""), R"({"s": ""})");
  EXPECT_EQ(raw("\rx\r"), R"({"s": "\rx\r"})");
}

TEST(ToolCalls, MissingTagsAtTheEnd) {
  const std::string full = "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>";
  const Result expected{"", {{"f", R"({"s": "x"})", true}}};
  for (const char* cut : {"\n</tool_call>", "\n</function>\n</tool_call>", "</parameter>\n</function>\n</tool_call>",
                          "\n</parameter>\n</function>\n</tool_call>"}) {
    EXPECT_EQ(parse(full.substr(0, full.size() - std::string(cut).size())), expected) << cut;
  }
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>"), expected);
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call>"), expected);
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</"
                  "function>\n<tool_call>\n<function=g>\n</function>"),
            (Result{"", {{"f", R"({"s": "x"})", true}, {"g", "{}", true}}}));
}

TEST(ToolCalls, TruncatedCallIsNotDelivered) {
  const std::string full =
      "<tool_call>\n<function=f>\n<parameter=s>\nhello world\n</parameter>\n<parameter=i>\n5\n</parameter>\n";
  for (size_t n = 0; n <= full.size(); ++n) {
    const Outcome cut = run({full.substr(0, n)}, TextEnd::truncated);
    EXPECT_EQ(cut.completed, 0) << n;
    for (const Call& call : cut.result.calls) EXPECT_FALSE(json::accept(call.arguments)) << call.arguments;
  }
  EXPECT_EQ(parse(full + "</function>", TextEnd::truncated).calls.size(), 1u);
  EXPECT_TRUE(parse(full + "</function>", TextEnd::truncated).calls[0].complete);
}

TEST(ToolCalls, ClosedFunctionBlocksAreNeverLost) {
  test::Random random(7);
  const std::vector<std::string> keys = {"s",       "i", "n",  "b", "o",  "a",  "maybe_s",
                                         "maybe_i", "e", "ei", "u", "so", "zzz"};
  const std::string alphabet = "0123456789.eE+-[]{}\",: truefalsn\n<>/\\";
  for (int round = 0; round < 3000; ++round) {
    std::string value;
    for (size_t n = random.below(12); n > 0; --n) value += alphabet[random.below(alphabet.size())];
    const std::string text = call_text("f", {{keys[random.below(keys.size())], value}});
    const Outcome whole = run({text});
    EXPECT_EQ(whole.completed, 1) << text;
    EXPECT_EQ(run(single_bytes(text)).result, whole.result) << text;
  }
}

TEST(ToolCalls, WordsBeforeTheFirstParameter) {
  EXPECT_EQ(parse("<tool_call>\n<function=f>\nok: <b>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>"),
            (Result{"", {{"f", R"({"s": "x"})", true}}}));
  const std::string prose = "<tool_call>\n<function=NAME>\nis how a call begins.";
  EXPECT_EQ(parse(prose), (Result{prose, {}}));
  EXPECT_EQ(parse("<tool_call>\n<function=other>\n<parameter=k>\n1\n</parameter>\n</function>\n</tool_call>"),
            (Result{"", {{"other", R"({"k": "1"})", true}}}));
}

TEST(ToolCalls, BareFunctionIsACallOnlyAlone) {
  const std::string bare = "<function=f>\n<parameter=s>\nx\n</parameter>\n</function>";
  const Result call{"", {{"f", R"({"s": "x"})", true}}};
  EXPECT_EQ(parse(bare), call);
  EXPECT_EQ(parse("\n " + bare + "\n</tool_call>\n"), call);
  EXPECT_EQ(parse(bare + "\n" + bare).calls.size(), 2u);
  for (const std::string& text : std::vector<std::string>{
           "Example:\n" + bare, bare + "\nlike this", "<function=f>\n<parameter=s>\nx\n</parameter>\n",
           std::string("<function=h>\n</function>"), std::string("<function=f>")}) {
    EXPECT_EQ(parse(text), (Result{text, {}}));
  }
}

TEST(ToolCalls, ExampleInProseIsText) {
  const std::string call = call_text("f", {{"s", "x"}});
  const std::string fenced = "A call looks so:\n\n```xml\n" + call + "\n```\n\nThat is all.";
  EXPECT_EQ(parse(fenced), (Result{fenced, {}}));
  const std::string quoted = "Write `<tool_call>\n<function=f>\n</function>` and so on";
  EXPECT_EQ(parse(quoted), (Result{quoted, {}}));
  EXPECT_EQ(parse("```\ncode\n```\n" + call), (Result{"```\ncode\n```", {{"f", R"({"s": "x"})", true}}}));
}

TEST(ToolCalls, ABlankNameIsNone) {
  const std::string call = call_text("f", {{"s", "x"}});
  for (const std::string text : {"<tool_call>\n<function= >\n</function>\n</tool_call>", "<tool_call>\n<function=\t>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>",
                                 "<tool_call>\n<function=>\n</function>\n</tool_call>"}) {
    EXPECT_EQ(parse(text), (Result{text, {}}));
    EXPECT_EQ(parse(call + "\n" + text).calls, (std::vector<Call>{{"f", R"({"s": "x"})", true}}));
  }
  for (const char* name : {"", " ", "\t ", " f", "f ", "a>b", "<f", "a\nb", "a\rb"}) EXPECT_FALSE(is_callable_name(name)) << name;
  for (const char* name : {"f", "a b", "\xC3\xBC", "mcp.server/tool-1"}) EXPECT_TRUE(is_callable_name(name)) << name;
  EXPECT_TRUE(is_callable_name(std::string(256, 'x')));
  EXPECT_FALSE(is_callable_name(std::string(257, 'x')));
}

TEST(ToolCalls, JsonInTheWrapper) {
  EXPECT_EQ(parse("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\", \"i\": 2}}\n</tool_call>"),
            (Result{"", {{"f", R"({"s": "</tool_call>", "i": 2})", true}}}));
  EXPECT_EQ(parse("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"i\\\": 2}\"}"),
            (Result{"", {{"f", R"({"i": 2})", true}}}));
  for (const std::string text : {"<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>",
                                 "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\nas above",
                                 "So: <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                                 "<tool_call>\n{\"name\": \"f\"", "<tool_call>{not json}</tool_call> x"}) {
    EXPECT_EQ(parse(text), (Result{text, {}}));
  }
}

TEST(ToolCalls, StringValuesStream) {
  ToolCallParser parser{ToolSchemas(tools()), {}};
  parser.push("<tool_call>\n<function=f>\n<parameter=s>\n");
  std::string joined;
  int deltas = 0;
  for (int i = 0; i < 500; ++i) {
    for (const ToolEvent& e : parser.push(i % 7 == 6 ? "line\n" : "word ")) {
      ASSERT_EQ(e.kind, ToolEvent::Kind::arguments);
      joined += e.text;
      ++deltas;
    }
    EXPECT_GE(deltas, i > 0 ? 1 : 0);
  }
  EXPECT_GT(deltas, 400);
  const auto half = parser.push("a <");  // the beginning of a tag waits, and nothing else
  EXPECT_EQ(half.at(0).text, "a ");
  const auto line = parser.push("b\n");  // a newline waits too: the last one is markup
  EXPECT_EQ(line.at(0).text, "<b");
}

TEST(ToolCalls, RandomMarkupNeverBreaks) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=f>",
                                          "<function=g>",
                                          "<function=zz>",
                                          "</function>",
                                          "<parameter=s>",
                                          "<parameter=i>",
                                          "<parameter=u>",
                                          "</parameter>",
                                          "\n",
                                          " ",
                                          "x",
                                          "{\"name\": \"f\"}",
                                          "<",
                                          "`",
                                          "```\n",
                                          "5",
                                          "\r\n",
                                          "<tool_",
                                          "</par"};
  test::Random random(3);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (size_t n = random.below(16); n > 0; --n) text += words[random.below(words.size())];
    const TextEnd end = round % 2 ? TextEnd::complete : TextEnd::truncated;
    const Result whole = run({text}, end).result;
    EXPECT_EQ(run(single_bytes(text), end).result, whole) << text;
    const size_t cut = random.below(text.size() + 1);
    EXPECT_EQ(run({text.substr(0, cut), text.substr(cut)}, end).result, whole) << text;
  }
}

// Work grows with the text, not with its square: a megabyte in small pieces, of what must wait longest.
TEST(ToolCalls, LongWaitsAreLinear) {
  for (const std::string word : {"\n", "</parameter>\n", "</parameter>\n</function>\n", "<", "</parameter>", " ",
                                 "<function=f>\n", "\r", "</function>\n</tool_call>\n"}) {
    for (const std::string start :
         {"", "<tool_call>\n<function=f>\n<parameter=s>\n", "<tool_call>\n<function=f>\n<parameter=i>\n",
          "<tool_call>\n{", "<function=f>\n<parameter=o>\n"}) {
      ToolCallParser parser{ToolSchemas(tools()), {}};
      parser.push(start);
      for (size_t n = 0; n < 300'000; n += word.size()) parser.push(word);
      parser.finish(TextEnd::complete);
    }
  }
}

TEST(OutputParser, ReasoningFirstThenCalls) {
  const std::string call = call_text("f", {{"s", "x"}});
  const std::string text = "I could " + call + " now.\n</think>\n\n" + call;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    OutputParser parser(true, ToolSchemas(tools()), {});
    std::string reasoning;
    for (auto& delta : {parser.push(text.substr(0, cut)), parser.push(text.substr(cut))}) reasoning += delta.reasoning;
    reasoning += parser.finish(TextEnd::complete).reasoning;
    EXPECT_EQ(reasoning, "I could " + call + " now.");
    EXPECT_EQ(parser.completed_calls(), 1);
  }
  OutputParser draft(true, ToolSchemas(tools()), {});
  EXPECT_EQ(draft.push(call).reasoning + draft.finish(TextEnd::complete).reasoning, call);
  EXPECT_EQ(draft.completed_calls(), 0);
}

}  // namespace
}  // namespace lily
