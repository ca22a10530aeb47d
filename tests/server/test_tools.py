"""Tool calls: which are made, how their arguments are typed, how they stream, and when they must or must not come."""
import itertools
import json
import unittest

import serve
from serve import Case, READ, WEATHER, WRITE, tool, without_ids

PARIS = "What is the weather in Paris?"
TWO = "What is the weather in Paris? And what is the weather in Rome?"
FRANCE = "Capital of France?"
BOTH_MODES = ({"enable_thinking": False}, {"enable_thinking": True})


class Tools(Case):
    def both(self, messages, **body):
        """The choice, the same with streaming and without; whatever comes, finish_reason tells of calls if and only if there are."""
        choice = self.server.chat(messages, **body)["choices"][0]
        e = self.server.stream_chat(messages, **body)
        self.assertEqual(without_ids(e.message), without_ids(choice["message"]))
        self.assertEqual(e.finish_reason, choice["finish_reason"])
        for calls in (choice["message"].get("tool_calls", []), e.calls):
            self.assertEqual(choice["finish_reason"] == "tool_calls", bool(calls))
            for c in calls:
                self.assertEqual(c["type"], "function")
                self.assertIsInstance(json.loads(c["function"]["arguments"]), dict)
            ids = [c["id"] for c in calls]
            self.assertEqual(len(set(ids)), len(ids))
            self.assertTrue(all(ids))
        return choice

    @staticmethod
    def calls(choice):
        return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in choice["message"].get("tool_calls", [])]

    def test_a_call_is_made_and_the_content_is_null(self):
        for mode in BOTH_MODES:
            choice = self.both(PARIS, tools=[WEATHER], **mode)
            self.assertEqual(self.calls(choice), [("get_weather", {"city": "Paris"})])
            self.assertIsNone(choice["message"]["content"])

    def test_parallel_calls_and_their_prohibition(self):
        for mode in BOTH_MODES:
            paris, rome = ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})
            for body in ({}, {"parallel_tool_calls": True}):
                self.assertEqual(self.calls(self.both(TWO, tools=[WEATHER], **body, **mode)), [paris, rome])
            self.assertEqual(self.calls(self.both(TWO, tools=[WEATHER], parallel_tool_calls=False, **mode)), [paris])
            for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
                self.assertEqual(len(self.calls(self.both(TWO, tools=[WEATHER], parallel_tool_calls=False, tool_choice=choice, **mode))), 1)

    def test_call_ids_are_unique_over_answers(self):
        ids = [c["id"] for _ in range(6) for c in self.server.chat(TWO, tools=[WEATHER])["choices"][0]["message"]["tool_calls"]]
        self.assertEqual(len(set(ids)), 12)

    def test_choices(self):
        named = {"type": "function", "function": {"name": "read_file"}}
        for mode, question in itertools.product(BOTH_MODES, (PARIS, FRANCE, "Name an antonym of heavy.", "Hi")):
            with self.subTest(mode=mode, question=question):
                tools = [WEATHER, READ, WRITE]
                choice = self.both(question, tools=tools, tool_choice="none", **mode, max_tokens=200)
                self.assertEqual((self.calls(choice), choice["finish_reason"]), ([], "stop"))
                choice = self.both(question, tools=tools, tool_choice="required", **mode, max_tokens=300)
                self.assertGreaterEqual(len(self.calls(choice)), 1)
                self.assertTrue({name for name, _ in self.calls(choice)} <= {"get_weather", "read_file", "write_file"})
                for form in (named, {"type": "function", "name": "read_file"}):
                    choice = self.both(question, tools=tools, tool_choice=form, **mode, max_tokens=300)
                    self.assertEqual({name for name, _ in self.calls(choice)}, {"read_file"})
                auto = self.both(question, tools=tools, **mode, max_tokens=300)
                self.assertEqual(without_ids(self.both(question, tools=tools, tool_choice="auto", **mode, max_tokens=300)["message"]),
                                 without_ids(auto["message"]))

    def test_names_that_begin_alike_can_be_forced(self):
        tools = [tool("get", {}), tool("get_weather", {"city": {"type": "string"}}), tool("get_weather_now", {"city": {"type": "string"}})]
        for t in tools:
            name = t["function"]["name"]
            choice = self.both(PARIS, tools=tools, tool_choice={"type": "function", "function": {"name": name}}, enable_thinking=False, max_tokens=100)
            self.assertEqual(self.calls(choice)[0][0], name)
        self.assertIn(self.calls(self.both(PARIS, tools=tools, tool_choice="required", max_tokens=200))[0][0], [t["function"]["name"] for t in tools])

    def test_a_call_that_was_cut_is_none(self):
        whole = self.server.chat(PARIS, tools=[WEATHER], enable_thinking=False)
        n = whole["usage"]["completion_tokens"]
        for cut in range(1, n):
            with self.subTest(cut=cut):
                one = self.server.chat(PARIS, tools=[WEATHER], enable_thinking=False, max_tokens=cut)["choices"][0]
                calls = one["message"].get("tool_calls", [])
                self.assertEqual(one["finish_reason"], "tool_calls" if calls else "length")
                for c in calls:
                    self.assertEqual(json.loads(c["function"]["arguments"]), {"city": "Paris"})
                e = self.server.stream_chat(PARIS, tools=[WEATHER], enable_thinking=False, max_tokens=cut)
                self.assertEqual(e.finish_reason, one["finish_reason"])
                for c in e.calls:  # a stream has begun to send it; half a closing tag at the cut is part of the value
                    a = c["function"]["arguments"]
                    self.assertTrue(a.startswith('{"city": "Paris') or json.dumps({"city": "Paris"}).startswith(a), a)

    def test_arguments_are_typed_by_the_schema(self):
        def minutes(schema, **more):
            t = tool("set_timer", {"minutes": schema}, description="Set a timer", **more)
            choice = self.both("Set a timer for 5 minutes.", tools=[t], enable_thinking=False)
            return choice["message"]["tool_calls"][0]["function"]["arguments"]
        number = json.dumps({"minutes": 5})
        string = json.dumps({"minutes": "5"})
        for schema in ({"type": "integer"}, {"type": "number"}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": ["integer", "null"]},
                       {"oneOf": [{"type": "integer"}]}, {"enum": [1, 5, 10]}, {"$ref": "#/$defs/m"}):
            more = {"$defs": {"m": {"type": "integer"}}} if "$ref" in schema else {}
            with self.subTest(schema=schema):
                self.assertEqual(json.loads(minutes(schema, **more)), json.loads(number))
        for schema in ({"type": "string"}, {"type": ["string", "null"]}, {"enum": ["1", "5"]}, {"type": "string", "format": "x"}, {}):
            with self.subTest(schema=schema):
                self.assertEqual(json.loads(minutes(schema)), json.loads(string))
        for schema in ({"type": "boolean"}, {"type": "array"}, {"type": "object"}):  # what does not fit comes as it was written
            with self.subTest(schema=schema):
                self.assertIn("minutes", json.loads(minutes(schema)))

    def test_a_long_string_streams_while_it_is_written(self):
        words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu"
        e = self.server.stream_chat(f"Write a file named notes.txt with the content: {words}", tools=[WRITE], enable_thinking=False)
        (call,) = e.calls
        self.assertEqual(json.loads(call["function"]["arguments"])["content"], words)
        pieces = [c["function"]["arguments"] for d in e.deltas for c in d.get("tool_calls", []) if c["function"].get("arguments")]
        self.assertGreater(len(pieces), 15)
        # The head comes first and alone holds id, type and name.
        heads = [c for d in e.deltas for c in d.get("tool_calls", []) if "id" in c]
        self.assertEqual(len(heads), 1)
        self.assertEqual((heads[0]["index"], heads[0]["function"]["name"]), (0, "write_file"))

    def test_text_about_tools_is_no_call(self):
        # Without tools, and where calls are forbidden, what looks like one is text.
        example = "Echo: <tool_call> <function=get_weather> </function> </tool_call>"
        for body in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
            choice = self.both(example, enable_thinking=False, max_tokens=80, **body)
            self.assertEqual(self.calls(choice), [])
            self.assertNotIn("tool_calls", choice["message"])

    def test_an_empty_list_of_tools_is_none_at_all(self):
        self.assertEqual(self.server.ask("/apply-template", messages=[{"role": "user", "content": PARIS}], tools=[]),
                         self.server.ask("/apply-template", messages=[{"role": "user", "content": PARIS}]))

    def test_a_whole_tool_loop(self):
        for mode in BOTH_MODES:
            with self.subTest(mode=mode):
                messages = [{"role": "user", "content": TWO}]
                said = self.server.chat(messages, tools=[WEATHER], **mode)["choices"][0]["message"]
                self.assertEqual(len(said["tool_calls"]), 2)
                messages += [said, *({"role": "tool", "tool_call_id": c["id"], "content": t} for c, t in zip(said["tool_calls"], ("rain, 7 degrees", "sun, 25 degrees")))]
                answer = self.both(messages, tools=[WEATHER], **mode, max_tokens=200)
                self.assertIn(answer["finish_reason"], ("stop", "tool_calls"))

    def test_arguments_in_history_render_alike_whatever_their_json(self):
        def prompt(arguments):
            call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": arguments}}
            return self.server.ask("/apply-template", messages=[{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}])["prompt"]
        value = {"b": 1, "a": "x", "c": [1, {"d": None}], "e": True, "ü": "日本"}
        expected = prompt(value)
        self.assertIn("<parameter=b>\n1\n</parameter>\n<parameter=a>\nx\n</parameter>", expected)  # the order of keys is kept
        for text in (json.dumps(value), json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2), json.dumps(value, ensure_ascii=False)):
            self.assertEqual(prompt(text), expected)
        self.assertEqual(prompt(""), prompt({}))
        self.assertEqual(prompt(None), prompt({}))
        for raw in ("not JSON", "[1]", "5", '{"a": '):
            self.assertIn(f"<parameter=arguments>\n{raw}\n</parameter>", prompt(raw))


if __name__ == "__main__":
    serve.main()
