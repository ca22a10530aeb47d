"""Many different requests under a small budget: bytes within it, and a process that does not grow."""
import random

import serve
from serve import Case

N = 1000 if serve.LONG else 300


class Memory(Case):
    flags = ("--cache-bytes", "64m", "--parallel", 4)

    def test_distinct_requests_stay_within_the_budget(self):
        before = self.server.probe()
        rng = random.Random(3)
        budget = self.server.status()["bytes"]["budget"]
        self.assertEqual(budget, 64 << 20)
        sizes, refused = [], 0
        for i in range(N):
            words = [rng.choice(("castle", "king", "tree", "river", "stone", "lamp")) for _ in range(rng.randrange(5, 250))]
            r = self.server.post("/v1/chat/completions", {
                "messages": [{"role": "system", "content": f"You are number {i}."}, {"role": "user", "content": " ".join(words)}],
                "enable_thinking": i % 2 == 0, "max_tokens": rng.randrange(1, 6), "temperature": 0})
            refused += r.status != 200
            if i % 10 == 0:
                b = self.server.status()["bytes"]
                self.assertLessEqual(b["kv"] + b["snapshots"] + b["running"], budget, i)
            if i >= N // 3:  # the budget is used up by then, and the allocator has what it needs
                sizes.append(self.server.rss())
        self.assertEqual(refused, 0)
        self.assertGreater(self.server.status()["cache"]["evicted"], 0)
        third = len(sizes) // 3
        growth = max(sizes[-third:]) - max(sizes[:third])
        self.assertLess(growth, 8 << 20, f"grew by {growth >> 20} MiB: {[s >> 20 for s in sizes[::20]]}")
        self.assertEqual(self.server.probe(), before)

    def test_where_answers_outgrow_the_budget_some_wait_and_all_come_whole(self):
        with serve.Server("--cache-bytes", "10m", "--parallel", 4) as s:
            before = s.probe()
            body = {"max_tokens": 1500, "temperature": 0, "logit_bias": {"8182": -100, "8180": -100}}
            alone = [s.complete([300 + i] * 200, **body)["choices"][0]["text"] for i in range(6)]
            jobs = [lambda i=i: s.post("/v1/completions", {**body, "prompt": [300 + i] * 200, "stream": i % 2 == 0}) for i in range(6)]
            for i, r in enumerate(serve.in_parallel(jobs)):
                self.assertEqual(r.status, 200)
                if i % 2 == 0:
                    e = serve.Events(r.body)
                    self.assertIsNone(e.error)
                    self.assertEqual(e.finish_reason, "length")
                    self.assertEqual(e.content, alone[i], i)
                else:
                    self.assertEqual(r.json()["usage"]["completion_tokens"], 1500)
                    self.assertEqual(r.json()["choices"][0]["text"], alone[i], i)
            self.assertEqual(s.status()["bytes"]["running"], 0)
            self.assertEqual(s.probe(), before)

    def test_a_prompt_that_the_budget_cannot_hold_is_refused_with_both_numbers(self):
        with serve.Server("--cache-bytes", "8m") as s:
            window = s.status()["max_model_len"]
            self.assertLess(window, 4096)
            self.assertEqual(s.get("/v1/models/tiny").json()["context_length"], window)
            self.refused(s.post("/v1/completions", {"prompt": [5] * window}), 400, "prompt", [window], "context_length_exceeded")
            self.assertEqual(s.complete([5] * (window - 1), max_tokens=1)["usage"]["completion_tokens"], 1)


if __name__ == "__main__":
    serve.main()
