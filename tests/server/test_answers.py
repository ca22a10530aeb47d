"""What an answer holds: text, stop strings, log probabilities, sampling, usage; and that a stream joins to the same."""
import json
import math
import unittest

import serve
from serve import Case, WEATHER, in_parallel, without_ids

NO_THINKING = {"enable_thinking": False}
COUNT = "Count from 7 to 19."
COPY = "Echo: alpha beta gamma delta beta gamma epsilon"
EMOJI = "Echo: naïve 日本語 🙂🙃 👩‍👩‍👧 e\u0301 done"


class Answers(Case):
    def both(self, messages, **body):
        """The answer without and with streaming, which must be equal; the first."""
        one = self.server.chat(messages, **body)
        many = self.server.stream_chat(messages, **body, stream_options={"include_usage": True})
        choice = one["choices"][0]
        self.assertEqual(without_ids(many.message), without_ids(choice["message"]))
        self.assertEqual(many.finish_reason, choice["finish_reason"])
        self.assertEqual(many.logprobs, choice["logprobs"] and choice["logprobs"]["content"])
        for key in ("prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"):
            self.assertEqual(many.usage[key], one["usage"][key])
        self.assertEqual(set(many.timings), set(one["timings"]))
        return choice["message"]["content"], choice, one

    def test_known_answers(self):
        text, choice, r = self.both("What is the last letter of terrace?")
        self.assertEqual(text, "The last letter of terrace is e.")
        self.assertEqual(choice["message"]["reasoning_content"], "t-e-r-r-a-c-e.")
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual((r["object"], r["model"]), ("chat.completion", "tiny"))
        self.assertEqual(r["usage"]["total_tokens"], r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"])
        self.assertEqual((r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]), (20, 21))

    def test_usage_counts_what_apply_template_and_tokenize_count(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 57 + 21?"}]
        for thinking in (False, True):
            r = self.server.chat(messages, enable_thinking=thinking)
            prompt = self.server.ask("/apply-template", messages=messages, enable_thinking=thinking)["tokens"]
            self.assertEqual(r["usage"]["prompt_tokens"], len(prompt))
            m = r["choices"][0]["message"]
            text = (m.get("reasoning_content", "") + "\n</think>\n\n" if thinking else "") + m["content"]
            n = len(self.server.ask("/tokenize", content=text, special=True)["tokens"])
            self.assertEqual(r["usage"]["completion_tokens"], n + 1)  # and the end token
            reasoning = r["usage"]["completion_tokens_details"]["reasoning_tokens"]
            self.assertEqual(reasoning > 0, thinking)
            self.assertLess(reasoning, n)

    def test_timings_are_there_and_plausible(self):
        r = self.server.chat("Write about 3 unheard things: " + "tree " * 40, max_tokens=9, logit_bias={"8182": -100, "8180": -100})
        t, u = r["timings"], r["usage"]
        self.assertEqual(t["prefill_tokens"], u["prompt_tokens"] - u["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(t["decode_tokens"], 8)  # the first token comes with the prompt
        for key in ("prefill_tok_s", "decode_tok_s", "prefill_s", "decode_s"):
            self.assertGreater(t[key], 0)

    def test_ids_are_unique(self):
        ids = {self.server.chat("Hi", max_tokens=1)["id"] for _ in range(5)} | {self.server.stream_chat("Hi", max_tokens=1).chunks[0]["id"]}
        self.assertEqual(len(ids), 6)

    def test_a_stream_begins_with_the_role_and_ends_with_usage_only_when_asked(self):
        for options, usage in (({}, False), ({"stream_options": {"include_usage": True}}, True), ({"stream_options": {"include_usage": False}}, False)):
            e = self.server.stream_chat(COUNT, **NO_THINKING, **options)
            self.assertEqual(e.deltas[0], {"role": "assistant", "content": ""})
            self.assertEqual(e.usage is not None, usage)
            self.assertEqual(e.chunks[-1]["choices"] == [], usage)
            self.assertEqual([c["object"] for c in e.chunks], ["chat.completion.chunk"] * len(e.chunks))
            self.assertGreater(len(e.deltas), 10)  # it came in pieces

    def test_max_tokens_by_both_names(self):
        for body in ({"max_tokens": 4}, {"max_completion_tokens": 4}, {"max_tokens": 4, "max_completion_tokens": 9},
                     {"max_tokens": 9, "max_completion_tokens": 4}):
            _, choice, r = self.both(COUNT, **NO_THINKING, **body)
            self.assertEqual((choice["finish_reason"], r["usage"]["completion_tokens"]), ("length", 4))

    # ---- stop strings ----

    def test_stop_at_every_place_of_a_text(self):
        text = self.both(COPY, **NO_THINKING)[0]
        self.assertIn("beta gamma delta", text)
        for begin in range(len(text)):
            for length in (1, 2, 5, 13):
                stop = text[begin:begin + length]
                if len(stop) < length:
                    continue
                with self.subTest(stop=stop):
                    r = self.server.chat(COPY, **NO_THINKING, stop=stop)["choices"][0]
                    self.assertEqual(r["message"]["content"], text[:text.index(stop)])
                    self.assertEqual(r["finish_reason"], "stop")

    def test_stop_sets(self):
        text = self.server.chat(COPY, **NO_THINKING)["choices"][0]["message"]["content"]
        sets = [["gamma", "gamma delta"], ["gamma delta", "gamma"], ["beta gamma epsilon", "delta"], ["bet", "beta gamma"],
                ["zzz", "eps"], ["a beta", "ta ga", "beta"], [f"no{i}" for i in range(15)] + ["delta"], ["gamma e"], ["never"], "a" * 1024]
        for stop in sets:
            with self.subTest(stop=stop):
                got, choice, _ = self.both(COPY, **NO_THINKING, stop=stop)
                places = [text.find(s) for s in ([stop] if isinstance(stop, str) else stop) if s in text]
                self.assertEqual(got, text[:min(places)] if places else text)
                self.assertEqual(choice["finish_reason"], "stop")

    def test_stop_of_many_bytes_to_a_character(self):
        text = self.both(EMOJI, **NO_THINKING)[0]
        for stop in sorted({c for c in text if ord(c) > 127} | {text[i:i + 3] for i in range(0, len(text) - 3, 2)}):
            with self.subTest(stop=stop):
                self.assertEqual(self.both(EMOJI, **NO_THINKING, stop=[stop])[0], text[:text.index(stop)])

    def test_no_part_of_a_stop_string_is_sent_and_the_rest_is_not_held_for_long(self):
        e = self.server.stream_chat(COPY, **NO_THINKING, stop=["gamma delta"])
        self.assertEqual(e.content, "alpha beta ")
        self.assertFalse(any("gamma" in (d.get("content") or "") for d in e.deltas))

    def test_stop_is_found_in_the_content_and_not_in_the_reasoning(self):
        text, choice, _ = self.both("What is the last letter of terrace?", stop=["-r-"])
        self.assertEqual(text, "The last letter of terrace is e.")
        text, choice, _ = self.both("What is the last letter of terrace?", stop=["terrace is"])
        self.assertEqual((text, choice["message"]["reasoning_content"]), ("The last letter of ", "t-e-r-r-a-c-e."))

    def test_stop_is_not_applied_inside_tool_arguments(self):
        question = "What is the weather in Paris?"
        plain = self.server.chat(question, tools=[WEATHER], **NO_THINKING)["choices"][0]
        self.assertEqual(plain["finish_reason"], "tool_calls")
        for stop in ("Paris", "city", "P", "get_weather", "{"):
            with self.subTest(stop=stop):
                _, choice, _ = self.both(question, tools=[WEATHER], **NO_THINKING, stop=stop)
                self.assertEqual(choice["finish_reason"], "tool_calls")
                self.assertEqual(without_ids(choice["message"]), without_ids(plain["message"]))

    # ---- log probabilities ----

    def check_logprobs(self, entries, text, n):
        self.assertEqual(b"".join(bytes(e["bytes"]) for e in entries).decode(), text)
        for e in entries:
            self.assertEqual(e["token"], bytes(e["bytes"]).decode("utf-8", "replace"))
            self.assertLessEqual(e["logprob"], 0)
            top = [t["logprob"] for t in e["top_logprobs"]]
            self.assertEqual(len(top), n)
            self.assertEqual(top, sorted(top, reverse=True))
            self.assertLessEqual(sum(map(math.exp, top)), 1 + 1e-5)
            for t in e["top_logprobs"]:
                self.assertEqual(t["token"], bytes(t["bytes"]).decode("utf-8", "replace"))

    def test_logprobs_have_an_entry_a_token_with_its_bytes(self):
        for question in (COPY, EMOJI, COUNT):
            for n in (None, 0, 1, 3, 20):
                with self.subTest(question=question, n=n):
                    body = {"logprobs": True} if n is None else {"logprobs": True, "top_logprobs": n}
                    text, choice, r = self.both(question, **NO_THINKING, **body)
                    entries = choice["logprobs"]["content"]
                    self.check_logprobs(entries, text, n or 0)
                    self.assertEqual(len(entries), r["usage"]["completion_tokens"] - 1)
                    if n:  # greedy: the one chosen is the likeliest
                        self.assertEqual([(e["token"], e["logprob"]) for e in entries],
                                         [(e["top_logprobs"][0]["token"], e["top_logprobs"][0]["logprob"]) for e in entries])
        self.assertIsNone(self.server.chat(COPY, **NO_THINKING, max_tokens=2)["choices"][0]["logprobs"])
        self.assertIsNone(self.server.chat(COPY, **NO_THINKING, max_tokens=2, logprobs=False)["choices"][0]["logprobs"])

    def test_logprobs_cover_reasoning_and_calls(self):
        for body in ({}, {"tools": [WEATHER]}):
            _, choice, r = self.both("What is the weather in Paris?", logprobs=True, top_logprobs=2, **body)
            self.assertEqual(len(choice["logprobs"]["content"]), r["usage"]["completion_tokens"] - 1)

    def test_logprobs_are_the_models_before_temperature_bias_and_penalties(self):
        base = self.server.chat(COUNT, **NO_THINKING, max_tokens=1, logprobs=True, top_logprobs=20)["choices"][0]["logprobs"]["content"][0]
        for body in ({"temperature": 1.7, "seed": 1, "top_k": 0}, {"logit_bias": {"100": 50}}, {"presence_penalty": 2}, {"repetition_penalty": 1.5},
                     {"temperature": 1, "top_k": 1}):
            with self.subTest(body=body):
                other = self.server.chat(COUNT, **NO_THINKING, max_tokens=1, logprobs=True, top_logprobs=20, **body)["choices"][0]["logprobs"]["content"][0]
                self.assertEqual(other["top_logprobs"], base["top_logprobs"])
        # A token that was chosen from far down is there all the same.
        far = self.server.chat(COUNT, **NO_THINKING, max_tokens=1, logprobs=True, top_logprobs=2, logit_bias={"100": 100})["choices"][0]["logprobs"]["content"][0]
        self.assertLess(far["logprob"], far["top_logprobs"][-1]["logprob"])

    # ---- sampling ----

    def test_same_seed_same_text_no_seed_another(self):
        body = {**NO_THINKING, "temperature": 2, "top_k": 0, "top_p": 1, "max_tokens": 12}
        def text(**more):
            return self.server.chat(COUNT, **body, **more)["choices"][0]["message"]["content"]
        self.assertEqual(text(seed=5), text(seed=5))
        self.assertEqual(text(seed=5), self.server.stream_chat(COUNT, **body, seed=5).content)
        self.assertNotEqual(text(seed=5), text(seed=6))
        first = text()  # some answers are likely even so: ask until another comes
        self.assertTrue(any(text() != first for _ in range(30)))

    def test_a_seed_holds_under_load_and_greedy_too(self):
        seeded = {**NO_THINKING, "temperature": 1.5, "top_k": 0, "top_p": 1, "max_tokens": 16, "seed": 11}
        greedy = {**NO_THINKING, "temperature": 0, "max_tokens": 16}
        def answer(body):
            return json.dumps(self.server.chat(COUNT, **body, logprobs=True, top_logprobs=3)["choices"][0])
        alone = {id(b): answer(b) for b in (seeded, greedy)}
        noise = [lambda i=i: self.server.complete("Load " * (20 * i), max_tokens=40) for i in range(1, 5)]
        mix = [lambda b=b: (id(b), answer(b)) for b in (seeded, greedy) * 3]
        for result in in_parallel(mix + noise):
            if isinstance(result, tuple):
                self.assertEqual(result[1], alone[result[0]])

    def test_logit_bias_forbids_and_forces(self):
        base = self.server.complete("In the", max_tokens=6, logprobs=0)["choices"][0]["logprobs"]["tokens"]
        first = self.server.ask("/tokenize", content=base[0])["tokens"]
        self.assertEqual(len(first), 1)
        other = self.server.complete("In the", max_tokens=6, logit_bias={str(first[0]): -100}, logprobs=0)["choices"][0]["logprobs"]["tokens"]
        self.assertNotIn(base[0], other)
        forced = self.server.complete("In the", max_tokens=6, logit_bias={"300": 100}, logprobs=0)["choices"][0]["logprobs"]["tokens"]
        self.assertEqual(len(set(forced)), 1)

    def test_penalties_change_what_repeats(self):
        prompt = "two, two, two, two, two, two, two,"
        def tokens(bias={}, **body):
            bias = {"8182": -100, "8180": -100, **bias}
            return self.server.complete(prompt, max_tokens=40, logprobs=0, logit_bias=bias, **body)["choices"][0]["logprobs"]["tokens"]
        base = len(set(tokens()))
        for body in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 2}):
            with self.subTest(body=body):
                self.assertGreater(len(set(tokens(**body))), base)
        # The presence penalty counts what was generated, not the prompt; the repetition penalty counts both.
        self.assertEqual(tokens(presence_penalty=2)[0], tokens()[0])
        self.assertEqual(tokens(frequency_penalty=2)[0], tokens()[0])
        # A likely token of the prompt: its logit is above zero and is divided (another one, lifted to half of it, wins then), or it is
        # below and is multiplied.
        for prompt, bias in (("ha ha ha ha ha ha ha ha", {"264": 1}), ("a b a b a b a", {})):
            first = tokens(bias)[0]
            ids = self.server.ask("/tokenize", content=prompt)["tokens"]
            self.assertIn(self.server.ask("/tokenize", content=first)["tokens"][0], ids, prompt)
            self.assertNotEqual(tokens(bias, repetition_penalty=100)[0], first, prompt)

    def test_top_k_one_and_tiny_top_p_are_greedy_at_any_temperature(self):
        greedy = self.server.complete("In the", max_tokens=8)["choices"][0]["text"]
        for body in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1}):
            with self.subTest(body=body):
                self.assertEqual(self.server.complete("In the", max_tokens=8, **{"temperature": 3, **body})["choices"][0]["text"], greedy)

    # ---- characters ----

    def test_no_delta_holds_half_a_character(self):
        for question in (EMOJI, "Echo: 🇫🇷🏳️‍🌈 한국어 ỡ ﷽ 𝔘𝔫", "Echo: 各国語 ありがとう"):
            with self.subTest(question=question):
                text, choice, _ = self.both(question, **NO_THINKING, logprobs=True, max_tokens=200)
                written = b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"])
                self.assertEqual(text, written.decode("utf-8", "replace"))  # the model itself may write half a character

    def test_a_character_cut_by_the_limit_comes_as_one_replacement(self):
        ids = self.server.ask("/tokenize", content="🙂")["tokens"]
        self.assertGreater(len(ids), 1)
        for k in range(1, len(ids)):  # forces the first byte or bytes, over and over
            bias = {str(ids[0]): 100}
            whole = self.server.complete("x", max_tokens=1, logit_bias=bias)["choices"][0]
            self.assertEqual((whole["text"], whole["finish_reason"]), ("\ufffd", "length"))
            e = self.server.stream("/v1/completions", prompt="x", temperature=0, max_tokens=1, logit_bias=bias)
            self.assertEqual(e.content, "\ufffd")
            break

    def test_invalid_utf8_of_the_model_neither_stalls_nor_breaks_json(self):
        # Every answer is drawn from single bytes above 127, which join to valid characters by accident only.
        import random
        rng = random.Random(4)
        byte_ids = [i for i in range(256)]
        ids = [i for i in byte_ids if self.server.ask("/detokenize", tokens=[i])["content"] == "\ufffd"][:60]
        self.assertGreater(len(ids), 20)
        for _ in range(10):
            bias = {str(i): rng.uniform(90, 100) for i in ids}
            body = dict(prompt="x", temperature=2, top_k=0, top_p=1, seed=rng.randrange(10**6), max_tokens=30, logit_bias=bias, logprobs=1)
            one = self.server.ask("/v1/completions", **body)["choices"][0]
            e = self.server.stream("/v1/completions", **body)
            self.assertEqual(e.content, one["text"])
            self.assertEqual(e.completion_logprobs, one["logprobs"])


class Completions(Case):
    def both(self, prompt, **body):
        one = self.server.complete(prompt, **body)
        many = self.server.stream("/v1/completions", prompt=prompt, temperature=0, **body, stream_options={"include_usage": True})
        choice = one["choices"][0]
        self.assertEqual(many.content, choice["text"])
        self.assertEqual(many.finish_reason, choice["finish_reason"])
        self.assertEqual(many.completion_logprobs, choice["logprobs"] or {})
        for key in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(many.usage[key], one["usage"][key])
        return choice, one

    def test_raw_text_goes_on(self):
        choice, r = self.both("1, 2, 3, 4, 5,", max_tokens=6)
        self.assertEqual((r["object"], choice["finish_reason"], r["usage"]["completion_tokens"]), ("text_completion", "length", 6))
        self.assertEqual(self.both("1, 2, 3, 4, 5,")[1]["usage"]["completion_tokens"], 16)  # the API's own default

    def test_control_tokens_of_a_raw_prompt_are_control_tokens(self):
        prompt = "<|im_start|>user\nName an antonym of heavy.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        choice, r = self.both(prompt)
        self.assertEqual((choice["text"], choice["finish_reason"]), ("The opposite of heavy is light.", "stop"))
        self.assertEqual(r["usage"]["prompt_tokens"], 19)

    def test_echo_puts_the_prompt_before_the_text(self):
        for prompt in ("In the beginning 日本", [5, 300, 301]):
            plain = self.both(prompt, max_tokens=5)[0]["text"]
            said = prompt if isinstance(prompt, str) else self.server.ask("/detokenize", tokens=prompt)["content"]
            self.assertEqual(self.both(prompt, max_tokens=5, echo=True)[0]["text"], said + plain)
        self.refused(self.server.post("/v1/completions", {"prompt": "x", "echo": True, "logprobs": 1}), 400, "echo")

    def test_stop(self):
        text = self.both("1, 2, 3, 4, 5,", max_tokens=24)[0]["text"]
        for begin in range(0, len(text), 3):
            stop = text[begin:begin + 4]
            choice, _ = self.both("1, 2, 3, 4, 5,", max_tokens=24, stop=[stop, "never"])
            self.assertEqual((choice["text"], choice["finish_reason"]), (text[:text.index(stop)], "stop"))
        # A stop string is looked for in what is generated, not in what is echoed.
        self.assertTrue(self.both("abc 1, 2, 3,", max_tokens=4, echo=True, stop="abc")[0]["text"].startswith("abc 1, 2, 3,"))

    def test_logprobs_lists(self):
        for n in (0, 1, 5, 20):
            choice, r = self.both("In the beginning", max_tokens=8, logprobs=n)
            lp = choice["logprobs"]
            self.assertEqual("".join(lp["tokens"]), choice["text"])
            self.assertEqual({len(v) for v in lp.values()}, {8})
            self.assertEqual(lp["text_offset"], [len("".join(lp["tokens"][:i])) for i in range(8)])
            if n:
                for token, logprob, top in zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]):
                    self.assertLessEqual(len(top), n)
                    self.assertEqual(top[token], logprob)
        self.assertIsNone(self.both("In the beginning", max_tokens=2)[0]["logprobs"])


if __name__ == "__main__":
    serve.main()
