"""Clients that leave, in every phase: nothing goes on running, and the next answer is right."""
import json
import random
import socket
import struct
import time

import serve
from serve import Case, WEATHER

N = 1000 if serve.LONG else 100
FOREVER = {"8182": -100, "8180": -100}  # no end token


class Cancel(Case):
    flags = ("--parallel", 4)

    def post(self, path, body):
        s = socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE)
        data = json.dumps(body).encode()
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return s

    @staticmethod
    def leave(s, rng):
        if rng.random() < 0.5:  # as a program that dies: a reset instead of an end
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()

    def body(self, phase, i):
        user = [{"role": "user", "content": f"Tell me about number {i}. Spell \"therapist\"."}]
        if phase == "prefill":
            return "/v1/completions", {"prompt": f"{i} " + "castle king " * 900, "max_tokens": 500, "logit_bias": FOREVER}
        if phase == "thinking":
            return "/v1/chat/completions", {"messages": user, "stream": True, "max_tokens": 1500, "logit_bias": FOREVER}
        if phase == "streaming":
            return "/v1/chat/completions", {"messages": user, "stream": True, "enable_thinking": False, "max_tokens": 1500, "logit_bias": FOREVER}
        if phase == "tool":
            return "/v1/chat/completions", {"messages": user, "tools": [WEATHER], "tool_choice": "required", "stream": True, "logit_bias": FOREVER}
        return "/v1/chat/completions", {"messages": user, "enable_thinking": False, "max_tokens": 1500, "logit_bias": FOREVER}

    def test_random_disconnects_leave_nothing_running(self):
        before = self.server.probe()
        rng = random.Random(5)
        begun = self.cancelled()
        for i in range(N):
            phase = ("prefill", "thinking", "streaming", "plain", "tool")[i % 5]
            s = self.post(*self.body(phase, i))
            if phase in ("thinking", "streaming", "tool") and rng.random() < 0.7:
                for _ in range(rng.randrange(1, 4)):
                    s.recv(500)  # somewhere inside its answer
            else:
                time.sleep(rng.random() * 0.03)
            self.leave(s, rng)
            if i % 25 == 24:
                self.check_idle(before)
        self.check_idle(before)
        self.assertGreater(self.cancelled() - begun, N // 4)  # most of them were under way when they left
        self.assertNotIn("lily_requests_failed_total 1", self.server.get("/metrics").body.decode())

    def check_idle(self, before):
        # Two seconds are asked for; a machine that is shared may need longer for the one pass that is under way.
        self.server.idle(2 if serve.LONG else 10)
        self.assertEqual(self.server.probe(), before)

    def cancelled(self):
        text = self.server.get("/metrics").body.decode()
        return int(float(next(x.split()[1] for x in text.splitlines() if x.startswith("lily_requests_cancelled_total"))))

    def test_many_leave_at_the_same_time_while_one_stays(self):
        expected = self.server.chat("Count from 7 to 19.", enable_thinking=False, logprobs=True)["choices"]
        rng = random.Random(6)
        for _ in range(5):
            leaving = [self.post(*self.body("streaming", i)) for i in range(3)]
            staying = self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Count from 7 to 19."}], "temperature": 0,
                                                         "enable_thinking": False, "logprobs": True})
            for s in leaving:
                self.leave(s, rng)
            data = b""
            while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < int(
                    next(x for x in data.split(b"\r\n") if x.lower().startswith(b"content-length")).split(b":")[1]):
                data += staying.recv(65536)
            staying.close()
            self.assertEqual(serve.replies(data)[0].json()["choices"], expected)
        self.server.idle(10)

    def test_a_client_that_ends_its_side_only_is_taken_to_have_left(self):
        s = self.post(*self.body("streaming", 1))
        s.recv(500)
        s.shutdown(socket.SHUT_WR)
        self.server.idle(10)
        s.close()

    def test_what_was_read_before_it_left_stays_cached(self):
        # On the slow back end, whose passes are long: status shows a reader when a pass is done and others are to come.
        with serve.Server("--backend", "reference") as s:
            body = json.dumps({"prompt": [300 + i % 50 for i in range(3900)], "max_tokens": 1}).encode()
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            deadline = time.monotonic() + max(300, serve.PATIENCE)
            cached = []
            for _ in range(2):
                with socket.create_connection((s.host, s.port), timeout=serve.PATIENCE) as c:
                    c.sendall(head % len(body) + body)
                    while s.status()["slots"]["reading"] == 0:
                        self.assertLess(time.monotonic(), deadline)
                        time.sleep(0.02)
                    cached.append(s.status()["last_request"]["cached_tokens"])
                s.idle(serve.PATIENCE)
            self.assertEqual(cached[0], 0)
            self.assertGreater(cached[1], 0)

    def test_a_reader_that_does_not_read_holds_nobody_else(self):
        s = self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "enable_thinking": False, "max_tokens": 3000,
                                               "logit_bias": FOREVER, "logprobs": True, "top_logprobs": 20})
        before = self.server.probe()
        self.assertEqual(self.server.probe(), before)
        s.close()
        self.server.idle(10)


if __name__ == "__main__":
    serve.main()
