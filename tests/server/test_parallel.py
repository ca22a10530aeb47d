"""Several requests at once: each gets the answer that it gets alone, nobody another's, and one too many is told so."""
import json
import random
import socket
import time

import serve
from serve import Case, Server, WEATHER, in_parallel, without_ids

OFF = {"enable_thinking": False}
QUESTIONS = ["What is 57 + 21?", "Name an antonym of heavy.", "What is the last letter of terrace?", "Count from 7 to 19.", "Spell \"therapist\".",
             "Echo: weir ghoul bromoform bead trio abnormalcy topsoil", "What is the capital of Belgium?", "Which is larger, 725 or 131?"]


class Parallel(Case):
    flags = ("--parallel", 8, "--threads", 2)

    def mixed(self, i):
        """Requests of every kind, by number: body and path."""
        rng = random.Random(i)
        question = [{"role": "user", "content": rng.choice(QUESTIONS)}]
        if rng.random() < 0.5:
            question.insert(0, {"role": "system", "content": "You are a helpful assistant. " + "Be kind. " * rng.randrange(1, 60)})
        body = {"messages": question, "temperature": 0, "max_tokens": rng.choice((1, 5, 40, 120)), "logprobs": True, "top_logprobs": 2}
        kind = i % 4
        if kind == 0:
            body.update(OFF)
        elif kind == 1:
            body.update(tools=[WEATHER], messages=[{"role": "user", "content": "What is the weather in Paris? And what is the weather in Rome?"}])
        elif kind == 2:
            body.update(temperature=1.2, seed=i, **OFF)
        return body

    def answer(self, server, body, stream=False):
        if stream:
            e = server.stream(**body)
            return without_ids(e.message), e.finish_reason, json.dumps(e.logprobs)
        c = server.ask(**body)["choices"][0]
        return without_ids(c["message"]), c["finish_reason"], json.dumps(c["logprobs"]["content"])

    def test_one_to_eight_at_once_give_what_each_gives_alone(self):
        bodies = [self.mixed(i) for i in range(24)]
        with Server("--parallel", 1) as alone:
            expected = [self.answer(alone, b) for b in bodies]
        rng = random.Random(1)
        for n in range(1, 9):
            chosen = rng.sample(range(len(bodies)), n)
            jobs = [lambda i=i, s=rng.random() < 0.5, wait=rng.random() * 0.1: (time.sleep(wait), self.answer(self.server, bodies[i], s))[1] for i in chosen]
            for i, got in zip(chosen, in_parallel(jobs)):
                with self.subTest(n=n, i=i):
                    self.assertEqual(got, expected[i])

    def test_the_same_prompt_eight_times_at_once(self):
        body = {"messages": [{"role": "system", "content": "Rules. " * 200}, {"role": "user", "content": "Count from 7 to 19."}], "temperature": 0, **OFF,
                "logprobs": True, "top_logprobs": 3}
        self.assertEqual(len({json.dumps(self.answer(self.server, body)) for _ in range(1)} |
                             {json.dumps(a) for a in in_parallel([lambda: self.answer(self.server, body)] * 8)}), 1)

    def test_a_marker_never_comes_to_another(self):
        before = self.server.probe()
        rng = random.Random(7)
        marker = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(12))
        secret = [{"role": "user", "content": f"The secret code is {marker}."}, {"role": "assistant", "content": "I will remember the code."},
                  {"role": "user", "content": "What is the secret code?"}]
        jobs = []
        for i in range(40):
            if i % 8 == 0:
                jobs.append(lambda: ("secret", self.server.chat(secret)["choices"][0]["message"]["content"]))
            else:
                q = {"role": "user", "content": f"{rng.choice(QUESTIONS)} {i}"} if i % 2 else {"role": "user", "content": "What is the secret code?"}
                jobs.append(lambda q=q, i=i: ("other", json.dumps(self.server.chat([q], temperature=i % 3, max_tokens=40)["choices"])))
        told = 0
        for kind, text in in_parallel(jobs):
            if kind == "secret":
                told += marker in text
            else:
                self.assertNotIn(marker, text)
        self.assertGreater(told, 0)  # the test could have found it
        self.assertEqual(self.server.probe(), before)


class Busy(Case):
    """One slot and a queue of two, on the slow reference back end."""
    flags = ("--backend", "reference", "--parallel", 1, "--queue", 2)

    def begin(self, body):
        s = socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE)
        data = json.dumps(body).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return s

    def until(self, condition):
        deadline = time.monotonic() + serve.PATIENCE
        while not condition(self.server.status()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_one_too_many_is_told_to_come_again(self):
        long = {"prompt": "In the beginning " * 200, "max_tokens": 500, "temperature": 0, "logit_bias": {"8182": -100, "8180": -100}}
        held = [self.begin(long)]
        try:
            self.until(lambda s: s["slots"]["running"] == 1)
            held += [self.begin({"prompt": f"{i}, 2, 3,", "max_tokens": 2}) for i in range(2)]
            self.until(lambda s: s["queue"]["waiting"] == 2)
            for stream in (False, True):
                r = self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": stream})
                self.refused(r, 429, code="queue_full")
                self.assertEqual(r.error["type"], "rate_limit_error")
                self.assertGreater(int(r.headers["retry-after"]), 0)
            # All else answers while the only slot is taken, and says so.
            self.assertEqual(self.server.get("/health").status, 200)
            self.assertEqual(self.server.ask("/tokenize", content="x")["count"], 1)
            self.assertIn("lily_requests_waiting 2", self.server.get("/metrics").body.decode())
            # One that leaves the queue makes room.
            held.pop().close()
            self.until(lambda s: s["queue"]["waiting"] == 1)
            held.append(self.begin({"prompt": "3, 4,", "max_tokens": 1}))
            self.until(lambda s: s["queue"]["waiting"] == 2)
        finally:
            held.pop(0).close()  # the long one: those that wait are answered
        for s in held:
            with s:
                data = b""
                while b"usage" not in data:
                    data += s.recv(65536)
                self.assertTrue(data.startswith(b"HTTP/1.1 200"))
        self.server.idle(serve.PATIENCE)
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)

    def test_a_comment_comes_whenever_five_seconds_would_pass_in_silence(self):
        # Two long prompts of which one waits for the other: neither has anything to say for a while.
        body = {"prompt": "word " * 4000, "max_tokens": 1, "stream": True, "temperature": 0}
        held = [self.begin({**body, "prompt": [7 + i] * 4000}) for i in range(2)]
        try:
            self.until(lambda s: s["slots"]["running"] + s["queue"]["waiting"] == 2)
            begin, seen, gap, last = time.monotonic(), b"", 0.0, time.monotonic()
            waiting = held[1]
            while time.monotonic() - begin < 13:
                if not serve.readable(waiting, 0.2):
                    continue
                piece = waiting.recv(65536)
                self.assertTrue(piece)
                seen += piece
                if b"[DONE]" in seen:
                    break
                gap, last = max(gap, time.monotonic() - last), time.monotonic()
            self.assertTrue(seen.startswith(b"HTTP/1.1 200"), seen[:100])
            self.assertLess(gap, 8)  # 5 and what a busy machine adds
            if time.monotonic() - begin >= 13:
                self.assertGreaterEqual(seen.count(b": keep-alive\n\n"), 1)
            else:
                self.skipTest("the back end was too fast to be silent")
        finally:
            for s in held:
                s.close()
        self.server.idle(serve.PATIENCE)


if __name__ == "__main__":
    serve.main()
