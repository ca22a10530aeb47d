"""The conversation cache: what a request costs that goes on from, or shares a beginning with, what was read before; and that an
answer from the cache is the one of a server that has none of it.

Two tolerances. Where all that is cached was read as a prompt, answers are equal to the bit. Where generated tokens are part of it,
they were computed in the arithmetic of decoding, and a cold server reads them in that of prompts (docs/NUMERICS.md): compared under
--exact, where the two differ by rounding alone.
"""
import copy
import json
import random
import unittest

import serve
from serve import Case, READ, Server, WEATHER, WRITE, in_parallel, without_ids

OFF = {"enable_thinking": False}
PRESERVE = {"preserve_thinking": True}
SYSTEM = {"role": "system", "content": "You are a helpful assistant. " + " ".join(f"Rule {i}: be brief and kind." for i in range(12))}
# Questions whose answers the bundled model knows and is sure of.
QUESTIONS = ["What is 57 + 21?", "Name an antonym of heavy.", "What is the last letter of terrace?", "What is the capital of Belgium?",
             "Which is larger, 725 or 131?", "What is 7 + 30?", "What is the opposite of sweet?", "Count from 7 to 12.",
             "What is 25 + 28?", "What is the capital of Paraguay?", "My age is 35.", "How do you spell gently?", "Please keep the number 5595 in mind.",
             "OK.", "What is the number?", "I was born on August 6.", "When is my birthday?", "The comb is in the car.", "Where is the comb?",
             "Add 73 and 36."]


def user(text):
    return {"role": "user", "content": text}


def cached(r):
    return r["usage"]["prompt_tokens_details"]["cached_tokens"]


def computed(r):
    return r["usage"]["prompt_tokens"] - cached(r)


class CacheCase(Case):
    tolerance = 0

    def tokens(self, server, messages, **body):
        return server.ask("/apply-template", messages=messages, **body)["tokens"]

    def opening(self, server, messages, **body):
        """How many tokens open an answer: what stands after the last message."""
        return len(self.tokens(server, messages, **body)) - len(self.tokens(server, messages, **{**body, "add_generation_prompt": False}))

    def same_answer(self, warm, cold):
        """Text and log probabilities of two replies, to the bit."""
        a, b = warm["choices"][0], cold["choices"][0]
        self.assertEqual(without_ids(a["message"]), without_ids(b["message"]))
        self.assertEqual((a["finish_reason"], a["logprobs"]), (b["finish_reason"], b["logprobs"]))

    def near_a_cold_one(self, warm, messages, **body):
        """The reply `warm` against a server that has seen nothing and reads the same ids: what was generated may be other ids than
        those of its text, so the prompt goes in as ids. As far as both take the same tokens: a forced call is not in the raw text."""
        ids = self.tokens(self.server, messages, **body)
        self.assertEqual(len(ids), warm["usage"]["prompt_tokens"])
        entries = warm["choices"][0]["logprobs"]["content"]
        with Server(*self.flags) as s:
            cold = s.complete(ids, max_tokens=len(entries), logprobs=3)["choices"][0]["logprobs"]
        compared = 0
        for x, token, top in zip(entries, cold["tokens"], cold["top_logprobs"]):
            for t in x["top_logprobs"][:2]:
                self.assertLess(abs(t["logprob"] - top[t["token"]]), self.tolerance, f"token {compared}, {x['token']!r}")
            compared += 1
            if x["token"] != token:
                break
        self.assertGreater(compared, 0)
        if "tool_choice" not in body:
            self.assertEqual(compared, len(entries))

    def cold(self, messages, **body):
        """The answer of a server that has seen nothing."""
        with Server(*self.flags) as s:
            return s.chat(messages, logprobs=True, top_logprobs=3, **body)

    def ask(self, messages, **body):
        return self.server.chat(messages, logprobs=True, top_logprobs=3, **body)


class Prompts(CacheCase):
    """Nothing generated is part of what is cached: equal to the bit."""

    def test_a_repeat_computes_the_opening_alone(self):
        for body in (OFF, {}, {"tools": [WEATHER]}):
            with self.subTest(body=body):
                messages = [SYSTEM, user("What is 57 + 21?")]
                first = self.ask(messages, **body)
                for _ in range(3):
                    again = self.ask(messages, **body)
                    self.assertLessEqual(computed(again), self.opening(self.server, messages, **body))
                    self.same_answer(again, first)
        text = "In the beginning " * 20
        first = self.server.complete(text, max_tokens=8, logprobs=3)
        again = self.server.complete(text, max_tokens=8, logprobs=3)
        self.assertEqual(again["choices"], first["choices"])
        self.assertEqual((cached(first), computed(again)), (0, 0))

    def test_the_last_message_edited(self):
        base = [SYSTEM, user("The comb is in the car."), {"role": "assistant", "content": "I see."}]
        self.ask([*base, user("Where is the comb? Tell me.")], **OFF)
        # What two such requests have in common, without what opens the user's turn.
        a, b = (self.tokens(self.server, [*base, user(t)], **OFF) for t in ("a", "b"))
        start = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y) - 3
        for i, text in enumerate(("Where can I find the comb?", "Where is the comb? Tell", "What is 57 + 21?", "x")):
            with self.subTest(text=text):
                r = self.ask([*base, user(text)], **OFF)
                self.assertGreaterEqual(cached(r), start)
                if i < 2:
                    self.same_answer(r, self.cold([*base, user(text)], **OFF))

    def test_regenerated_after_an_answer_went_on(self):
        messages = [SYSTEM, user("Name an antonym of heavy.")]
        for body in (OFF, {}):
            first = self.ask(messages, **body)
            said = first["choices"][0]["message"]
            self.ask([*messages, said, user("What is 7 + 30?")], **body)
            again = self.ask(messages, **body)
            self.assertLessEqual(computed(again), self.opening(self.server, messages, **body))
            self.same_answer(again, first)

    def test_a_middle_message_edited_keeps_what_stands_before_it(self):
        def talk(word):
            return [SYSTEM, user("What is 7 + 30?"), {"role": "assistant", "content": "7 + 30 = 37"}, user(f"Is {word} a word?"),
                    {"role": "assistant", "content": "Yes."}, user("Name an antonym of heavy.")]
        self.ask(talk("castle"), **OFF)
        r = self.ask(talk("mountain"), **OFF)
        self.assertGreaterEqual(cached(r), len(self.tokens(self.server, talk("x")[:1], add_generation_prompt=False)))
        self.same_answer(r, self.cold(talk("mountain"), **OFF))

    def test_a_shared_block_of_system_and_tools(self):
        tools = [WEATHER, READ, WRITE]
        system = {"role": "system", "content": "Shared rules. " + " ".join(f"Point {i} of the list." for i in range(60))}
        block = len(self.tokens(self.server, [system, user("x")], tools=tools, **OFF)) - len(self.tokens(self.server, [user("x")], **OFF))
        tails = [f"What is {i} + {i + 3}?" for i in range(8)]
        first = self.ask([system, user(tails[0])], tools=tools, **OFF)
        self.assertEqual(cached(first), 0)
        for tail in tails[1:]:
            r = self.ask([system, user(tail)], tools=tools, **OFF)
            self.assertGreaterEqual(cached(r), block - 3)
            self.assertLess(computed(r), 40)
        # At the same time, on a server of its own: whoever comes after the block was read has it.
        with Server(*self.flags, "--parallel", 8) as s:
            s.chat([system, user(tails[0])], tools=tools, **OFF)
            replies = in_parallel([lambda t=t: s.chat([system, user(t)], tools=tools, **OFF, logprobs=True, top_logprobs=3) for t in tails])
            for tail, r in zip(tails, replies):
                self.assertGreaterEqual(cached(r), block - 3)
                self.same_answer(r, self.ask([system, user(tail)], tools=tools, **OFF))

    def test_one_character_of_a_schema_is_a_miss(self):
        changed = copy.deepcopy(WEATHER)
        changed["function"]["description"] += "."
        messages = [user("What is the weather in Oslo?")]
        self.ask(messages, tools=[WEATHER, READ], **OFF)
        self.assertGreater(cached(self.ask(messages, tools=[WEATHER, READ], **OFF)), 100)
        r = self.ask(messages, tools=[changed, READ], **OFF)
        self.assertEqual(cached(r), 0)
        self.same_answer(r, self.cold(messages, tools=[changed, READ], **OFF))
        parted = self.server.status()["last_request"]
        a, b = (self.tokens(self.server, messages, tools=[t, READ], **OFF) for t in (WEATHER, changed))
        self.assertEqual(parted["parted_at"], next(i for i, (x, y) in enumerate(zip(a, b)) if x != y))
        self.assertIn("current weather for a city", parted["prompt_text"])
        self.assertNotEqual(parted["prompt_text"], parted["cached_text"])

    def test_status_shows_a_line_that_changes(self):
        def system(n):
            return {"role": "system", "content": f"Billing checksum {n} of this call.\n" + "Be brief. " * 50}
        self.ask([system(11111), user("Hi")], **OFF)
        r = self.ask([system(22222), user("Hi")], **OFF)
        self.assertEqual(cached(r), 0)
        last = self.server.status()["last_request"]
        self.assertIn("11111", last["cached_text"])
        self.assertIn("22222", last["prompt_text"])
        self.assertLess(last["parted_at"], 20)
        with Server("--strip-volatile-line", "Billing checksum") as s:
            s.chat([system(11111), user("Hi")], **OFF)
            r = s.chat([system(22222), user("Hi")], **OFF)
            self.assertLess(computed(r), 20)

    def test_a_trailing_reminder_that_changes_costs_itself_alone(self):
        def talk(n):
            return [SYSTEM, user("What is 7 + 30?"), {"role": "system", "content": f"Reminder {n}."}]
        self.ask(talk(1), **OFF)
        r = self.ask(talk(2), **OFF)
        self.assertGreaterEqual(cached(r), len(self.tokens(self.server, talk(1)[:2], add_generation_prompt=False)))

    def test_splits_right_behind_a_boundary(self):
        # The convolution looks back over three tokens: prompts that part 1, 2, 3… tokens behind a snapshot.
        base = self.server.ask("/tokenize", content="Lines of a long text about castles and kings. " * 8)["tokens"]
        self.server.complete(base, max_tokens=1)
        for n in range(1, 6):
            ids = base + [300 + n] * n
            warm = self.server.complete(ids, max_tokens=6, logprobs=5)
            self.assertEqual(cached(warm), len(base))
            with Server(*self.flags) as s:
                self.assertEqual(s.complete(ids, max_tokens=6, logprobs=5)["choices"], warm["choices"])

    def test_random_splits(self):
        rng = random.Random(9)
        with Server(*self.flags) as cold:
            for i in range(40):
                # Another first token for each: none shares a beginning with another.
                ids = [300 + i] + [rng.randrange(256, 8000) for _ in range(rng.randrange(2, 200))]
                split = rng.randrange(1, len(ids))
                self.server.complete(ids[:split], max_tokens=1)
                warm = self.server.complete(ids, max_tokens=3, logprobs=5)
                self.assertEqual(cached(warm), split)
                fresh = cold.complete(ids, max_tokens=3, logprobs=5)
                self.assertEqual((cached(fresh), fresh["choices"]), (0, warm["choices"]))

    def test_a_shared_beginning_is_read_once_by_those_who_come_together(self):
        system = {"role": "system", "content": "Shared rules. " + " ".join(f"Point {i} of the list." for i in range(300))}
        with Server(*self.flags, "--parallel", 8) as s:
            replies = in_parallel([lambda i=i: s.chat([system, user(f"What is {i} + 3?")], **OFF) for i in range(8)])
        self.assertLess(sum(computed(r) for r in replies), 2 * replies[0]["usage"]["prompt_tokens"])

    def test_a_cached_length_of_every_size(self):
        ids = self.server.ask("/tokenize", content="The quick brown fox jumps over the lazy dog and runs on. " * 6)["tokens"][:70]
        with Server(*self.flags) as s:
            for n in [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70]:
                r = s.complete(ids[:n], max_tokens=1, logprobs=5)
                again = s.complete(ids[:n], max_tokens=1, logprobs=5)
                self.assertEqual(again["choices"], r["choices"])
                self.assertEqual(computed(again), 0)


class Chats(CacheCase):
    flags = ("--exact",)
    tolerance = 1e-3  # prompts and generated tokens differ by float32 rounding

    def chat(self, body, keep_reasoning):
        """Twenty turns; each costs what the API says and no more. The last reply and its messages."""
        messages, previous, before = [SYSTEM], None, None
        for question in QUESTIONS:
            messages.append(user(question))
            r = self.ask(messages, **body, max_tokens=120)
            if previous:
                if keep_reasoning:
                    # All but the last token generated: its end token, or what the limit cut, has no state yet.
                    known = previous["usage"]["prompt_tokens"] + previous["usage"]["completion_tokens"] - 1
                else:
                    known = before - self.opening(self.server, messages, **body)
                with self.subTest(question=question):
                    self.assertGreaterEqual(cached(r), known)
            before, previous = r["usage"]["prompt_tokens"], r
            said = r["choices"][0]["message"]
            if not keep_reasoning:
                said = {k: v for k, v in said.items() if k != "reasoning_content"}
            asked = list(messages)
            messages.append(said)
        self.near_a_cold_one(r, asked, **body)

    def test_twenty_turns_without_thinking(self):
        self.chat(OFF, keep_reasoning=False)

    def test_twenty_turns_with_thinking_that_the_template_strips(self):
        self.chat({}, keep_reasoning=False)

    def test_twenty_turns_with_preserved_thinking(self):
        self.chat(PRESERVE, keep_reasoning=True)

    def test_twenty_turns_without_thinking_preserved(self):
        # The empty think block stays in the prompt too: the new tokens alone.
        self.chat({**OFF, **PRESERVE}, keep_reasoning=True)

    def tool_loop(self, respell=None, drop_reasoning=False, **body):
        """Several calls after one question: within the loop the template shows the reasoning, so the new tokens alone are read."""
        messages = [SYSTEM, user("What is the weather in Paris?")]
        previous = None
        rounds = 0
        for i in range(10):
            r = self.ask(messages, tools=[WEATHER, READ], tool_choice="required", **body, max_tokens=200)
            said = r["choices"][0]["message"]
            self.assertIn("tool_calls", said)
            if previous:
                known = previous["usage"]["prompt_tokens"] + previous["usage"]["completion_tokens"] - 1
                with self.subTest(round=i):
                    self.assertGreaterEqual(cached(r), known)
                    rounds += 1
            previous, asked = r, list(messages)
            said = copy.deepcopy(said)
            if drop_reasoning:
                said.pop("reasoning_content", None)
            for call in said["tool_calls"]:
                if respell:
                    call["function"]["arguments"] = respell(call["function"]["arguments"])
            messages.append(said)
            for call in said["tool_calls"]:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"rain, {i} degrees"})
        self.assertEqual(rounds, 9)
        return r, asked

    def test_a_tool_loop(self):
        for mode in (OFF, {}):
            r, asked = self.tool_loop(**mode)
            self.near_a_cold_one(r, asked, tools=[WEATHER, READ], tool_choice="required", **mode)

    def test_a_tool_loop_whose_client_spells_arguments_otherwise(self):
        for respell in (lambda a: json.dumps(json.loads(a), separators=(",", ":")), lambda a: json.dumps(json.loads(a), indent=4), json.loads):
            self.tool_loop(respell, **OFF)
        self.tool_loop(lambda a: json.dumps(json.loads(a), separators=(",", ":")))

    def test_a_tool_loop_whose_client_drops_the_reasoning(self):
        self.tool_loop(drop_reasoning=True)
        with Server(*self.flags, "--restore-reasoning", "off") as s:
            messages = [user("What is the weather in Paris?")]
            r = s.chat(messages, tools=[WEATHER])
            said = {k: v for k, v in r["choices"][0]["message"].items() if k != "reasoning_content"}
            messages += [said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "rain"}]
            self.assertLess(cached(s.chat(messages, tools=[WEATHER])), r["usage"]["prompt_tokens"] + 1)

    def test_after_a_tool_loop_a_new_question_misses_from_the_first_stripped_turn_on(self):
        r, asked = self.tool_loop()
        said = r["choices"][0]["message"]
        done = [*asked, said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "rain"}, {"role": "assistant", "content": "Rain."}]
        r = self.ask([*done, user("Name an antonym of heavy.")], tools=[WEATHER, READ])
        first_turn = len(self.tokens(self.server, asked[:2], tools=[WEATHER, READ], add_generation_prompt=False))
        self.assertGreaterEqual(cached(r), first_turn)
        self.near_a_cold_one(r, [*done, user("Name an antonym of heavy.")], tools=[WEATHER, READ])

    def test_a_changed_word_of_an_answer_is_not_taken_for_the_remembered_one(self):
        messages = [SYSTEM, user("Name an antonym of heavy.")]
        self.ask(messages, **OFF)
        for content in ("The opposite of heavy is LIGHT.", "The opposite of heavy is light", "The opposite of  heavy is light.", ""):
            asked = [*messages, {"role": "assistant", "content": content}, user("What did you say?")]
            ids = self.tokens(self.server, asked, **OFF)
            text = self.server.ask("/apply-template", messages=asked, **OFF)["prompt"]
            self.assertEqual(ids, self.server.ask("/tokenize", content=text, special=True)["tokens"])

    def test_what_was_left_out_of_an_answer_does_not_come_back_with_it(self):
        """Behind a stop string, in a call that the limit cut or in one call too many the model wrote more than the client was given."""
        def rendered(server, messages, said, **body):
            answered = [*messages, said, *([{"role": "tool", "content": "rain"}] if "tool_calls" in said else []), user("And a bridge?")]
            return server.ask("/apply-template", messages=answered, preserve_thinking=True, **body)["prompt"]
        with Server() as other:
            for mode in (OFF, {}):
                messages = [user("What is a castle?")]
                words = self.server.chat(messages, preserve_thinking=True, **mode)["choices"][0]["message"]["content"]
                for stop in (words[10:16], words[3:5], words[-3:]):
                    with self.subTest(mode=mode, stop=stop):
                        said = self.server.chat(messages, preserve_thinking=True, stop=stop, **mode)["choices"][0]["message"]
                        self.assertNotIn(stop, said["content"])
                        self.assertEqual(rendered(self.server, messages, said, **mode), rendered(other, messages, said, **mode))
            messages, tools = [user("What is the weather in Paris? And what is the weather in Rome?")], [WEATHER]
            two = self.server.chat(messages, tools=tools, preserve_thinking=True, **OFF)
            self.assertEqual(len(two["choices"][0]["message"]["tool_calls"]), 2)
            said = self.server.chat(messages, tools=tools, preserve_thinking=True, parallel_tool_calls=False, **OFF)["choices"][0]["message"]
            self.assertEqual(len(said["tool_calls"]), 1)
            self.assertEqual(rendered(self.server, messages, said, tools=tools, **OFF), rendered(other, messages, said, tools=tools, **OFF))
            for cut in range(1, two["usage"]["completion_tokens"]):
                said = self.server.chat(messages, tools=tools, preserve_thinking=True, max_tokens=cut, **OFF)["choices"][0]["message"]
                with self.subTest(cut=cut):
                    self.assertEqual(rendered(self.server, messages, said, tools=tools, **OFF), rendered(other, messages, said, tools=tools, **OFF))

    def test_side_requests_do_not_evict_the_conversation(self):
        # Room for few snapshots; three one-shot prompts between two turns.
        with Server("--cache-bytes", "48m", "--parallel", 1) as s:
            budget = s.status()["bytes"]["budget"]
            messages, previous = [SYSTEM, user(" ".join(f"Item {i} is in box {i * 7}." for i in range(100)))], None
            for turn in range(8):
                r = s.chat(messages, **OFF, max_tokens=30)
                if previous:
                    self.assertGreater(r["usage"]["prompt_tokens"], 1000)
                    self.assertLess(computed(r), 150, f"turn {turn}")
                previous = r
                messages += [r["choices"][0]["message"], user(QUESTIONS[turn])]
                for side in range(3):
                    s.chat(f"Side request {turn} {side}: " + f"title {side} words " * 100, **OFF, max_tokens=5)
                b = s.status()["bytes"]
                self.assertLessEqual(b["kv"] + b["snapshots"] + b["running"], budget)
            self.assertGreater(s.status()["cache"]["evicted"], 0)


if __name__ == "__main__":
    serve.main()
