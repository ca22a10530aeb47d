"""Bodies that are wrong in odd ways: what is refused names the field and what was expected, and nothing passes without a word."""
import copy
import http.client
import json

import serve
from serve import Case, WEATHER

HI = [{"role": "user", "content": "Name an antonym of heavy."}]
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


def offered(**function):
    return [{"type": "function", "function": {"name": "look", **function}}]


EVERYTHING = {
    "model": "tiny", "stream": False, "stream_options": {"include_usage": True}, "max_tokens": 1, "max_completion_tokens": 1, "n": 1, "seed": 1,
    "temperature": 0, "top_p": 1, "top_k": 1, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
    "logit_bias": {"5": 1}, "stop": ["zz"], "logprobs": True, "top_logprobs": 1, "response_format": {"type": "text"}, "modalities": ["text"],
    "enable_thinking": True, "chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": True}, "reasoning_effort": "low",
    "reasoning": {"effort": "low", "max_tokens": 5}, "thinking": {"type": "enabled", "budget_tokens": 5}, "thinking_budget": 5,
    "extra_body": {"thinking": {"type": "enabled"}}, "add_generation_prompt": True, "parallel_tool_calls": True,
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "tools": offered(description="d", strict=False, parameters={
        "type": "object", "required": ["a"], "additionalProperties": False,
        "properties": {"a": {"type": "string", "enum": ["x"]}, "n": {"anyOf": [{"type": "integer"}, {"type": ["null"]}]}}}),
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "q"}]},
                 {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [
                     {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                 {"role": "tool", "tool_call_id": "c", "content": "ok"}],
}
# Where a value of another type is right, too: by the end of the path.
OTHER_TYPES = tuple(f" {end}" for end in (
    "content", "content 0", "arguments", "enum 0", "properties a", "properties n", "anyOf 0", "anyOf 1", "required", "additionalProperties", "stop",
    "parameters type", "properties a type", "anyOf 0 type", "anyOf 1 type"))


def places(value, path=()):
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def kind(value):
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


class Refusals(Case):
    flags = ("--alias", "org/model")

    def chat_reply(self, **body):
        return self.server.post(CHAT, {"messages": HI, "enable_thinking": False, "temperature": 0, "max_tokens": 3, **body})

    def test_a_number_beyond_a_double_is_named_with_its_place(self):
        head = '{"messages": [{"role": "user", "content": "Hi"}], '
        for number in ("1e400", "-1e400", "1" + "0" * 400 + ".0"):
            for path, body in ((CHAT, head + '"temperature": %s}'), (CHAT, head + '"seed": %s}'), (CHAT, head + '"max_tokens": %s}'),
                               (CHAT, head + '"unheard_of": %s}'), (COMPLETION, '{"prompt": "x", "top_p": %s}'), ("/tokenize", '{"special": %s}')):
                field = body.split('"')[-2]
                with self.subTest(path=path, field=field, number=number[:9]):
                    self.refused(self.server.post(path, body % number), 400, field, ["number", number[:9]])
        for param, body in (("logit_bias.5", head + '"logit_bias": {"4": 1, "5": 1e400}}'),
                            ("messages[1].content", '{"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": 1e400}]}'),
                            ("tools[0].function.parameters.properties.a.enum[1]",
                             head + '"tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"enum": [1, 1e400]}}}}}]}')):
            with self.subTest(param=param):
                self.refused(self.server.post(CHAT, body), 400, param)

    def test_another_type_at_any_place_is_refused_with_its_name(self):
        self.assertEqual(self.server.post(CHAT, EVERYTHING).ignored, [])
        for path in places(EVERYTHING):
            for odd in (None, True, 1.5, 10**30, "\0x", [], [[]], {"a": 1}):
                body = copy.deepcopy(EVERYTHING)
                inside = body
                for key in path[:-1]:
                    inside = inside[key]
                usual, inside[path[-1]] = inside[path[-1]], odd
                with self.subTest(path=path, odd=str(odd)[:9]):
                    r = self.server.post(CHAT, body)
                    if r.status == 400:
                        self.assertTrue(r.error["param"], r.error)
                    elif path != ("model",) or r.status != 404:
                        self.assertEqual(r.status, 200, r.body[:300])
                        same = odd is None or kind(odd) == kind(usual)
                        self.assertTrue(same or "".join(f" {key}" for key in path).endswith(OTHER_TYPES), "accepted")

    def test_what_is_nested_too_deep_is_named(self):
        schema = '{"items": ' * 70 + "{}" + "}" * 70
        body = '{"messages": [], "tools": [{"function": {"name": "f", "parameters": %s}}]}' % schema
        error = self.refused(self.server.post(CHAT, body), 400, words=["nested deeper than 64"])
        self.assertTrue(error["param"].startswith("tools[0].function.parameters.items"), error)

    def test_nothing_is_read_past_a_nul(self):
        body = json.dumps({"messages": HI, "max_tokens": 1})
        for rest in ("\0", "\0x", "\0" + body):
            self.refused(self.server.post(CHAT, body + rest), 400, words=["not JSON"])

    def test_many_unknown_fields_hide_no_known_one(self):
        unknown = {f"u{i}": 1 for i in range(100)}
        self.refused(self.chat_reply(**unknown, n=2), 400, "n")
        self.refused(self.server.post(COMPLETION, {**unknown, "prompt": "x", "n": 2}), 400, "n")
        r = self.chat_reply(**unknown)
        self.assertEqual(r.status, 200)
        self.assertGreaterEqual(set(r.ignored), {f"u{i}" for i in range(60)})

    def test_the_list_of_ignored_fields_stays_a_header_that_clients_can_read(self):
        many = {"u" * 60 + str(i): 1 for i in range(3000)}
        for path, body in ((CHAT, {"messages": HI, **many}), (COMPLETION, {"prompt": "x", **many}), ("/tokenize", {"content": "x", **many}),
                           (CHAT, {"messages": HI, "response_format": {"type": "text", **many}}), (CHAT, {"messages": HI, "extra_body": many})):
            r = self.server.post(path, {**body, "max_tokens": 1})
            self.assertEqual(r.status, 200)
            self.assertLess(len(r.headers["x-lily-ignored"]), 4096)
            self.assertRegex(r.headers["x-lily-ignored"], r"and \d+ more$")

    def test_every_route_lists_what_it_ignores_and_the_log_says_it_once(self):
        for path, body in (("/tokenize", {"content": "x"}), ("/detokenize", {"tokens": [5]}), ("/apply-template", {"messages": HI})):
            with self.subTest(path=path):
                self.assertEqual(self.server.post(path, {**body, "odd_one": 1, "model": "tiny", "nothing": None}).ignored, ["odd_one"])
                self.refused(self.server.post(path, {**body, "model": "gpt-4"}), 404, "model")
                self.refused(self.server.post(path, {**body, "model": 5}), 400, "model")
        self.assertEqual(self.server.post("/tokenize", {"content": None, "prompt": "x"}).status, 200)
        self.assertEqual(self.server.post("/tokenize", {"content": "x", "prompt": "y"}).ignored, ["prompt"])
        self.assertEqual(sum("'odd_one'" in line for line in self.server.log), 1)

    def test_tools_that_are_wrong_inside(self):
        parameters = "tools[0].function.parameters"
        for param, tools in ((parameters, offered(parameters="x")), (parameters, offered(parameters=[])),
                             (parameters + ".type", offered(parameters={"type": 5})),
                             (parameters + ".properties.city", offered(parameters={"properties": {"city": "string"}})),
                             ("tools[0].parameters", [{"name": "look", "parameters": 5}]),
                             ("tools[0].input_schema", [{"name": "look", "input_schema": "x"}]),
                             ("tools[0].function", [{"type": "function", "function": "look", "name": "look"}]),
                             ("tools[0].function.description", offered(description=5)), ("tools[0].function.strict", offered(strict=1))):
            for path in (CHAT, "/apply-template"):
                with self.subTest(param=param, path=path):
                    self.refused(self.server.post(path, {"messages": HI, "tools": tools}), 400, param, ["expected"])
        self.assertEqual(self.chat_reply(tools=offered(strict=True, parameters={"properties": {"a": {"type": "banana"}}})).ignored,
                         ["tools.function.strict", parameters + ".properties.a.type"])
        self.assertEqual(self.chat_reply(tools=offered(strict=False, parameters=None)).ignored, [])

    def test_a_forced_call_has_a_name_that_a_call_can_have(self):
        for name in ("<|im_end|>", "</think>", "a>b", "a\nb", " look", "look ", "x" * 257):
            tools = [WEATHER, *offered(name=name)]
            for choice in ("required", {"type": "function", "function": {"name": name}}):
                with self.subTest(name=name[:20], choice=choice):
                    self.refused(self.chat_reply(tools=tools, tool_choice=choice), 400, "tools[1].function.name")
            self.assertEqual(self.chat_reply(tools=tools, tool_choice={"type": "function", "function": {"name": "get_weather"}}).status, 200)
            self.assertEqual(self.chat_reply(tools=tools).status, 200)
        for name in ("a b", "ü", "mcp.server/tool-1", "x" * 256):
            with self.subTest(name=name[:20]):
                r = self.chat_reply(tools=offered(name=name), tool_choice="required", max_tokens=300)
                self.assertEqual([c["function"]["name"] for c in r.json()["choices"][0]["message"].get("tool_calls", [])], [name])

    def test_logprobs_false_and_alternatives_are_two_wishes(self):
        self.refused(self.chat_reply(logprobs=False, top_logprobs=2), 400, "top_logprobs")
        self.assertIsNone(self.chat_reply(logprobs=False, top_logprobs=0).json()["choices"][0]["logprobs"])
        for body in ({"top_logprobs": 2, "logprobs": True}, {"logprobs": True, "top_logprobs": 2}):
            (first, *_) = self.chat_reply(**body).json()["choices"][0]["logprobs"]["content"]
            self.assertEqual(len(first["top_logprobs"]), 2)

    def test_a_token_id_has_one_spelling(self):
        for key in ("+5", " 5", "05", "5.0", "0x5", "", "-0"):
            self.refused(self.chat_reply(logit_bias={key: 1}), 400, "logit_bias")

    def test_a_models_name_may_come_in_percent_encoding(self):
        for path in ("org/model", "org%2Fmodel", "org%2fmodel", "t%69ny"):
            connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=serve.PATIENCE)
            connection.request("GET", f"/v1/models/{path}")
            self.assertEqual(connection.getresponse().status, 200, path)
            connection.close()
        for path in ("org%", "org%2", "org%zzmodel", "%2e%2e%2ftiny", "tiny%00"):
            self.refused(self.server.get(f"/v1/models/{path}"), 404, "model")


if __name__ == "__main__":
    serve.main()
