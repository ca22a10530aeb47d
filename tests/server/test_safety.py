"""What strangers and browsers may send: Host and Origin, keys, sizes, shapes of HTTP and JSON. After each the probe's answer is the same."""
import json
import os
import signal
import socket
import threading
import time

import serve
from serve import Case, Server, replies

CHAT = "/v1/chat/completions"
ROUTES = [("POST", CHAT), ("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/v1/models/tiny"), ("POST", "/tokenize"), ("POST", "/detokenize"),
          ("POST", "/apply-template"), ("GET", "/health"), ("GET", "/status"), ("GET", "/metrics"), ("GET", "/nowhere"), ("POST", "/nowhere"),
          ("PUT", CHAT), ("DELETE", "/status"), ("OPTIONS", CHAT), ("TRACE", "/status")]
BODIES = {CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}, "/v1/completions": {"prompt": "x", "max_tokens": 1},
          "/tokenize": {"content": "x"}, "/detokenize": {"tokens": [5]}, "/apply-template": {"messages": [{"role": "user", "content": "Hi"}]}}


class SafetyCase(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.before = cls.server.probe()

    def unharmed(self):
        self.assertEqual(self.server.probe(), self.before)

    def send(self, method, path, headers, body=None):
        """With exactly these headers; Connection: close."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nConnection: close\r\n"
        for name, value in headers:
            head += f"{name}: {value}\r\n"
        if body is not None:
            head += f"Content-Length: {len(data)}\r\n"
        (reply,) = replies(self.server.raw(head.encode("utf-8", "surrogateescape") + b"\r\n" + data))
        return reply


class HostAndOrigin(SafetyCase):
    flags = ("--allowed-host", "lily.example", "--allowed-host", "Other.Example", "--allowed-origin", "https://chat.example",
             "--allowed-origin", "http://dev.example:3000")

    def test_hosts(self):
        port = self.server.port
        good = ["localhost", f"localhost:{port}", "LOCALHOST", "LocalHost:80", "localhost.", f"localhost.:{port}", "127.0.0.1", f"127.0.0.1:{port}", "127.9.9.9",
                "[::1]", f"[::1]:{port}", "[::ffff:127.0.0.1]:80", "192.168.1.5:8000", "[fe80::1]", "app.localhost", "lily.example", "lily.example:443",
                "LILY.Example.", "other.example"]
        bad = ["evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "lily.example.evil", "xlily.example",
               "", " ", ":80", "[::1", "::1", "[evil]", "localhost:80x", "localhost:80:80", "127.1.evil", "0x7f.1", "2130706433", "user@localhost",
               "localhost/evil", "localhost\\evil", "evil.example#localhost", "lily.example..", "127.0.0.1, evil.example", "%6cocalhost", "localhost\x00"]
        for method, path in (("GET", "/v1/models"), ("GET", "/health"), ("POST", CHAT), ("GET", "/nowhere")):
            body = BODIES.get(path)
            extra = [("Content-Type", "application/json")] if body else []
            for host in good:
                with self.subTest(path=path, good=host):
                    self.assertIn(self.send(method, path, [("Host", host), *extra], body).status, (200, 404))
            for host in bad:
                with self.subTest(path=path, bad=host):
                    self.assertIn(self.send(method, path, [("Host", host), *extra], body).status, (400, 403))
        for hosts in ([], [("Host", "localhost"), ("Host", "localhost")], [("Host", "localhost"), ("host", "evil.example")]):
            with self.subTest(hosts=hosts):
                self.assertEqual(self.send("GET", "/v1/models", hosts).status, 400)
        self.unharmed()

    def test_origins(self):
        here = f"127.0.0.1:{self.server.port}"
        good = [f"http://{here}", f"https://{here}", f"HTTP://{here}", "https://chat.example", "HTTPS://Chat.Example", "http://dev.example:3000"]
        bad = ["null", "", "https://evil.example", "http://chat.example", "https://chat.example:444", "https://chat.example.evil", "https://sub.chat.example",
               "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost:1", "file://", "http://dev.example", "https://chat.example/", "*",
               "https://chat.example https://evil.example", f"http://{here}.evil", f"http://{here}@evil.example", "http://lily.example"]
        for path in ("/v1/models", "/health", "/status", CHAT):
            method, body = ("POST", BODIES[CHAT]) if path == CHAT else ("GET", None)
            extra = [("Content-Type", "application/json")] if body else []
            for origin in good:
                with self.subTest(path=path, good=origin):
                    r = self.send(method, path, [("Host", here), ("Origin", origin), *extra], body)
                    self.assertEqual(r.status, 200)
                    self.assertEqual(r.headers["access-control-allow-origin"], origin)
                    self.assertIn("Origin", r.headers["vary"])
            for origin in bad:
                with self.subTest(path=path, bad=origin):
                    r = self.send(method, path, [("Host", here), ("Origin", origin), *extra], body)
                    self.assertEqual(r.status, 403)
                    self.assertNotIn("access-control-allow-origin", r.headers)
        r = self.send("GET", "/v1/models", [("Host", here), ("Origin", good[0]), ("Origin", "https://evil.example")])
        self.assertEqual(r.status, 403)
        self.assertNotIn("access-control-allow-origin", self.server.get("/v1/models").headers)
        self.unharmed()

    def test_a_page_may_read_a_stream_and_an_error(self):
        headers = {"Origin": "https://chat.example"}
        r = self.server.post(CHAT, {**BODIES[CHAT], "stream": True, "user": "x"}, headers=headers)
        self.assertEqual((r.status, r.headers["access-control-allow-origin"]), (200, "https://chat.example"))
        self.assertIn("x-lily-ignored", r.headers["access-control-expose-headers"].lower())
        r = self.server.post(CHAT, {"messages": []}, headers=headers)
        self.assertEqual((r.status, r.headers["access-control-allow-origin"]), (400, "https://chat.example"))

    def test_preflight(self):
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, authorization"}
        r = self.server.request("OPTIONS", CHAT, headers={"Origin": "https://chat.example", **ask})
        self.assertEqual((r.status, r.headers["access-control-allow-origin"]), (204, "https://chat.example"))
        self.assertIn("POST", r.headers["access-control-allow-methods"])
        for h in ("content-type", "authorization"):
            self.assertIn(h, r.headers["access-control-allow-headers"].lower())
        self.assertNotIn("*", "".join(r.headers.values()))
        for origin in ("https://evil.example", "null"):
            r = self.server.request("OPTIONS", CHAT, headers={"Origin": origin, **ask})
            self.assertEqual(r.status, 403)
            self.assertNotIn("access-control-allow-origin", r.headers)

    def test_a_post_must_say_that_it_is_json(self):
        for path, body in BODIES.items():
            for kind in (None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", "application/jsonx",
                         "application/json-patch+json", "text/plain; application/json", "*/*"):
                with self.subTest(path=path, kind=kind):
                    headers = [("Host", "localhost")] + ([("Content-Type", kind)] if kind is not None else [])
                    self.assertEqual(self.send("POST", path, headers, body).status, 415)
            for kind in ("application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;charset=UTF-8"):
                with self.subTest(path=path, kind=kind):
                    self.assertEqual(self.send("POST", path, [("Host", "localhost"), ("Content-Type", kind)], body).status, 200)


class Keys(SafetyCase):
    key = "s3cret-κλειδί-" + "k" * 40

    @classmethod
    def setUpClass(cls):
        cls.server = Server(env={"LILY_API_KEY": cls.key}).__enter__()

    def test_the_key_is_asked_for_on_every_route_but_health(self):
        good = [("Authorization", f"Bearer {self.key}"), ("authorization", f"bearer {self.key}"), ("X-Api-Key", self.key)]
        bad = [None, ("Authorization", ""), ("Authorization", "Bearer"), ("Authorization", "Bearer "), ("Authorization", self.key),
               ("Authorization", f"Basic {self.key}"), ("Authorization", f"Bearer {self.key}x"), ("Authorization", f"Bearer {self.key[:-1]}"),
               ("Authorization", f"Bearer {self.key.upper()}"), ("Authorization", "Bearer wrong"), ("Authorization", f"Bearer  {self.key} x"),
               ("X-Api-Key", ""), ("X-Api-Key", "wrong"), ("X-Api-Key", self.key[:-1]), ("Authorization", "Bearer " + "\0" * len(self.key.encode()))]
        for method, path in ROUTES:
            body = BODIES.get(path, {}) if method == "POST" else None
            base = [("Host", "localhost")] + ([("Content-Type", "application/json")] if method == "POST" else [])
            for header in bad:
                with self.subTest(method=method, path=path, header=str(header)[:60]):
                    r = self.send(method, path, base + ([header] if header else []), body)
                    if path == "/health":
                        self.assertIn(r.status, (200, 400))
                    elif header and "\0" in header[1]:
                        self.assertIn(r.status, (400, 401))  # no HTTP at all
                    else:
                        self.assertEqual(r.status, 401)
                        self.assertEqual(r.error["code"], "invalid_api_key")
                        self.assertIn("www-authenticate", r.headers)
                        self.assertNotIn(self.key, r.body.decode())
            for header in good:
                with self.subTest(method=method, path=path, good=header[0]):
                    self.assertNotEqual(self.send(method, path, [*base, header], body).status, 401)

    def test_the_key_is_not_in_the_log_nor_on_the_command_line(self):
        self.server.post(CHAT, BODIES[CHAT], headers={"Authorization": "Bearer wrong-and-private"})
        self.assertNotIn("s3cret", "\n".join(self.server.log))
        self.assertNotIn("wrong-and-private", "\n".join(self.server.log))

    def test_a_preflight_needs_no_key_and_gives_nothing_else(self):
        here = f"http://{self.server.host}:{self.server.port}"
        r = self.server.request("OPTIONS", CHAT, headers={"Origin": here, "Access-Control-Request-Method": "POST"})
        self.assertEqual((r.status, r.body), (204, b""))


class Flags(SafetyCase):
    def test_an_address_that_others_reach_needs_a_key_or_the_flag(self):
        for host in ("0.0.0.0", "::"):
            done = serve.subprocess.run([serve.BIN, "serve", "tiny", "--port", "0", "--host", host], capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"--api-key", done.stderr)
        with Server("--host", "0.0.0.0", "--insecure") as s:
            s.host = "127.0.0.1"
            self.assertEqual(s.get("/health").status, 200)

    def test_a_flag_that_could_have_no_effect_is_refused(self):
        for flag, value in (("--api-key", ""), ("--api-key", " x"), ("--api-key", "x\n"), ("--allowed-host", "a/b"), ("--allowed-host", ""),
                            ("--allowed-origin", "chat.example"), ("--allowed-origin", "*"), ("--allowed-origin", "https://chat.example/")):
            with self.subTest(flag=flag, value=value):
                done = serve.subprocess.run([serve.BIN, "serve", "no-such-model", "--port", "0", flag, value], capture_output=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(flag.encode(), done.stderr)
        done = serve.subprocess.run([serve.BIN, "serve", "no-such-model"], env={**serve.os.environ, "LILY_API_KEY": ""}, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"LILY_API_KEY", done.stderr)

    def test_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("no IPv6 here")
        with Server("--host", "::1") as s:
            self.assertEqual(s.get("/health").status, 200)

    def test_prompts_are_not_in_the_log(self):
        self.server.chat("My password is xyzzy-plugh.", max_tokens=2)
        self.server.post(CHAT, {"messages": [{"role": "user", "content": "xyzzy-plugh"}], "temperature": -1})
        self.assertNotIn("xyzzy-plugh", "\n".join(self.server.log))

    def test_sigterm_lets_running_answers_end(self):
        for stream in (False, True):
            with Server() as s:
                expected = s.chat("Count from 7 to 19.", enable_thinking=False, max_tokens=400, logit_bias={"8182": -100, "8180": -100})["choices"][0]["message"]["content"]
                got = {}

                def ask(s=s, got=got):
                    body = dict(messages=[{"role": "user", "content": "Count from 7 to 19."}], temperature=0, enable_thinking=False, max_tokens=400,
                                logit_bias={"8182": -100, "8180": -100})
                    got["text"] = s.stream(**body).content if stream else s.ask(**body)["choices"][0]["message"]["content"]
                t = threading.Thread(target=ask)
                t.start()
                deadline = time.monotonic() + 60
                while s.status()["slots"]["running"] == 0:
                    self.assertLess(time.monotonic(), deadline)
                s.child.send_signal(signal.SIGTERM)
                t.join(60)
                self.assertEqual(got.get("text"), expected)
                s.child.wait(60)
                self.assertEqual(s.child.returncode, 0)
                with self.assertRaises(OSError):
                    socket.create_connection(("127.0.0.1", s.port), timeout=5)

    def test_a_second_signal_ends_it_at_once(self):
        with Server("--backend", "reference") as s:
            c = socket.create_connection((s.host, s.port))
            body = json.dumps({"prompt": [9] * 8, "max_tokens": 30000, "logit_bias": {"8182": -100, "8180": -100}}).encode()  # has no end for long
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            deadline = time.monotonic() + 60
            while s.status()["slots"]["running"] == 0:
                self.assertLess(time.monotonic(), deadline)
            s.child.send_signal(signal.SIGTERM)
            while not any("ending" in line for line in s.log):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            s.child.send_signal(signal.SIGTERM)
            s.child.wait(60)
            s.stop(expected=128 + signal.SIGTERM)
            c.close()


class Shapes(SafetyCase):
    """Bodies and HTTP of every wrong kind."""

    def raw_body(self, body, path=CHAT):
        r = self.server.post(path, body)
        return r

    def test_json_of_every_wrong_kind(self):
        deep = 5000
        bad = [b"", b" ", b"{", b"{}x", b"[" * deep, b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep, b"\xff\xfe", b'{"messages": [{"role": "user", "content": "\xff"}]}',
               b'{"messages": [{"role": "user", "content": "\xc0\xaf"}]}', b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}', b'\x00', b'{"a": 1,}', b"{'a': 1}",
               b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": 01}', b'{"a": "\x01"}', b'{"a": "\\x"}', b'{"a": "\\u12"}', b'{"a": tru}', b'{"a" 1}', b'{"messages": [',
               b'"' + b"a" * 100000, b"1" * 100000, b'{"a": ' + b"9" * 100000 + b"}", b"\xef\xbb\xbf", b"null", b"// x\n{}", b'{"messages"\x00: []}']
        for body in bad:
            for path in BODIES:
                with self.subTest(body=body[:60], path=path):
                    self.refused(self.server.post(path, body), 400)
        self.unharmed()

    def test_depth_limit(self):
        def nested(n):
            return b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "metadata": ' + b"[" * n + b"]" * n + b"}"
        self.assertEqual(self.server.post(CHAT, nested(60)).status, 200)
        for n in (65, 100, 100000):
            error = self.refused(self.server.post(CHAT, nested(n)), 400)
            self.assertIn("64", error["message"])
        schema = {"type": "string"}
        for _ in range(25):
            schema = {"type": "object", "properties": {"a": schema}}
        self.assertEqual(self.server.post(CHAT, {**BODIES[CHAT], "tools": [serve.tool("f", {"a": schema})]}).status, 200)

    def test_lone_surrogates_are_text_or_a_clear_refusal(self):
        for text in (r"\ud83d", r"\ude00", r"\ude00\ud83d", r"a\ud83db", r"\ud83d\ud83d\ude00"):
            body = '{"max_tokens": 1, "messages": [{"role": "user", "content": "%s"}]}' % text
            with self.subTest(text=text):
                r = self.server.post(CHAT, body)
                self.assertIn(r.status, (200, 400), r.body)
                if r.status == 400:
                    self.refused(r, 400)
        self.assertEqual(self.server.post(CHAT, r'{"max_tokens": 1, "messages": [{"role": "user", "content": "\ud83d\ude00"}]}').status, 200)
        self.unharmed()

    def test_huge_numbers(self):
        for number in ("1" + "0" * 30, "1" + "0" * 400, "-1" + "0" * 30, "1e308", "1e400", "-0", "1e-400", "0.1" + "0" * 5000, "18446744073709551616", "9223372036854775808"):
            for field in ("temperature", "max_tokens", "seed", "top_k", "n", "thinking_budget", "unheard_of"):
                body = '{"messages": [{"role": "user", "content": "Hi"}], "%s": %s%s}' % (field, number, "" if field == "max_tokens" else ', "max_tokens": 1')
                with self.subTest(number=number[:20], field=field):
                    self.assertIn(self.server.post(CHAT, body).status, (200, 400))
        for n in ("[1e30]", "[-1]", "[99999999999]", "[1.5]", "[1" + "0" * 40 + "]"):
            self.refused(self.server.post("/detokenize", '{"tokens": %s}' % n), 400)
            self.refused(self.server.post("/v1/completions", '{"prompt": %s}' % n), 400)
        self.unharmed()

    def test_of_equal_keys_the_last_counts(self):
        r = self.server.post(CHAT, '{"messages": [], "max_tokens": 3, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}')
        self.assertEqual(r.json()["usage"]["completion_tokens"], 1)
        many = "{" + ",".join(f'"k{i % 100}": {i}' for i in range(200000)) + ', "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}'
        begin = time.monotonic()
        self.assertEqual(self.server.post(CHAT, many).status, 200)
        self.assertLess(time.monotonic() - begin, 30)

    def test_many_keys_and_long_lists(self):
        body = {**BODIES[CHAT], **{f"unheard_of_{i}": i for i in range(50000)}}
        r = self.server.post(CHAT, body)
        self.assertEqual(r.status, 200)
        self.assertLess(len(r.headers["x-lily-ignored"]), 8000)  # a header that clients can still read
        self.refused(self.server.post(CHAT, {"messages": [{"role": "user", "content": "word"}] * 20000}), 400, code="context_length_exceeded")
        self.refused(self.server.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x "}] * 50000}]}), 400, code="context_length_exceeded")
        self.unharmed()

    def test_long_messages(self):
        for size, text in ((50_000, "a"), (50_000, "word "), (50_000, "<"), (50_000, "\n"), (50_000, "日"), (50_000, "<think>"), (50_000, "</think>"),
                           (50_000, "<|im_end|>"), (50_000, "e\u0301"), (50_000, " "), (50_000, "9"), (50_000, "\u0000"), (8_000_000, "a"), (8_000_000, "x y ")):
            content = (text * (size // len(text) + 1))[:size]
            with self.subTest(size=size, text=text):
                begin = time.monotonic()
                r = self.server.post(CHAT, {"messages": [{"role": "assistant", "content": content}, {"role": "user", "content": "Hi"}], "max_tokens": 1,
                                            "preserve_thinking": True})
                if r.status != 200:
                    self.refused(r, 400, code="context_length_exceeded")
                self.assertLess(time.monotonic() - begin, 60)
        self.unharmed()

    def test_texts_on_which_patterns_explode(self):
        for text in ("a" * 200_000 + "!", "'" * 100_000, "\u0301" * 100_000, "1" * 200_000, " \t" * 100_000, "\r\n" * 100_000, "ﬁ" * 100_000, "가" * 60_000,
                     "<tool_call>\n<function=" * 10_000, "```" * 50_000):
            begin = time.monotonic()
            self.assertEqual(self.server.post("/tokenize", {"content": text}).status, 200)
            self.assertLess(time.monotonic() - begin, 20, text[:20])
        self.unharmed()

    def test_a_body_that_is_too_large(self):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        (r,) = replies(self.server.raw((head + f"Content-Length: {(64 << 20) + 1}\r\n\r\n").encode() + b"x" * 1000))
        self.assertEqual(r.status, 413)
        self.assertIn(str(64 << 20), r.error["message"])
        for length in ("-1", "x", "99999999999999999999999", "1e3", "1, 2", ""):
            with self.subTest(length=length):
                (r,) = replies(self.server.raw((head + f"Content-Length: {length}\r\nConnection: close\r\n\r\n{{}}").encode()))
                self.assertIn(r.status, (400, 413))
        # In chunks it is not known before: it ends where the limit is.
        with socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) as s:
            s.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
            data = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
            try:
                for _ in range(70):
                    s.sendall(data)
            except OSError:
                pass  # refused while it was still sending
            answer = serve.read_all(s)
        self.assertTrue(answer.startswith(b"HTTP/1.1 413"), answer[:60])
        self.unharmed()

    def test_heads_that_are_too_large_or_malformed(self):
        good = "Host: localhost\r\n"
        (r,) = replies(self.server.raw(f"GET /health HTTP/1.1\r\n{good}X: {'a' * 70000}\r\n\r\n".encode()))
        self.assertEqual(r.status, 431)
        (r,) = replies(self.server.raw(f"GET /{'a' * 70000} HTTP/1.1\r\n{good}\r\n".encode()))
        self.assertIn(r.status, (414, 431))
        (r,) = replies(self.server.raw((f"GET /health HTTP/1.1\r\n{good}" + "".join(f"X{i}: 1\r\n" for i in range(6000)) + "\r\n").encode()))
        self.assertEqual(r.status, 431)
        for data in (b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET /health\r\n\r\n", b"GET /health HTTP/2.0\r\n\r\n", b"\x00" * 100,
                     b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n", b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /he alth HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health HTTP/1.1\nHost: localhost\n\n"):
            with self.subTest(data=data[:40]):
                with socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) as s:
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                    answer = serve.read_all(s)
                if answer:
                    self.assertEqual(replies(answer)[0].status, 400)
        # Two lengths, or a length and chunks, are how requests are smuggled through proxies: nothing that follows is taken for a request.
        body = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for extra in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                      b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: chunked, gzip\r\n", b"Transfer-Encoding: gzip\r\nContent-Length: 0\r\n"):
            with self.subTest(extra=extra):
                answer = self.server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + extra + b"\r\n" + body)
                self.assertEqual([r.status for r in replies(answer)], [400], answer[:200])
        self.unharmed()

    def test_chunked_bodies(self):
        body = json.dumps(BODIES["/tokenize"]).encode()
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        for size in (1, 3, 1000):
            data = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size]) for i in range(0, len(body), size)) + b"0\r\n\r\n"
            (r,) = replies(self.server.raw(head + data))
            self.assertEqual((r.status, r.json()["count"]), (200, 1))
        for data in (b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n{}\r\n", b"2\r\n{}x\r\n0\r\n\r\n"):
            with self.subTest(data=data):
                with socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) as s:
                    s.sendall(head + data)
                    s.shutdown(socket.SHUT_WR)
                    found = replies(serve.read_all(s))
                self.assertTrue(all(r.status in (400, 413) for r in found))
        self.unharmed()

    def test_a_body_byte_by_byte_and_one_that_never_ends(self):
        body = json.dumps(BODIES["/tokenize"]).encode()
        data = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(len(data)):
                s.sendall(data[i:i + 1])
            self.assertEqual(replies(serve.read_all(s))[0].status, 200)
        slow = [socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) for _ in range(100)]
        for i, s in enumerate(slow):
            s.sendall(data[:i % len(data)])
        self.unharmed()  # while all of them are waited for
        self.assertEqual(self.server.status()["slots"]["running"], 0)
        for s in slow[:50]:
            s.close()
        # What came too slowly is told so and closed: the head within 15 s.
        deadline = time.monotonic() + 60
        with slow[60] as s:
            answer = serve.read_all(s)
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 408"), answer[:60])
        self.assertLess(time.monotonic(), deadline)
        for s in slow[50:]:
            s.close()
        self.unharmed()

    def test_pipelined_requests_are_answered_in_order(self):
        def request(text, close=False):
            body = json.dumps({"content": text}).encode()
            return b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + (b"Connection: close\r\n" if close else b"") + \
                b"Content-Length: %d\r\n\r\n" % len(body) + body
        texts = ["a", "a b", "a b c", "a b c d", "x" * 3000, "a"]
        found = replies(self.server.raw(b"".join(request(t, i + 1 == len(texts)) for i, t in enumerate(texts))))
        self.assertEqual([r.status for r in found], [200] * len(texts))
        self.assertEqual([r.json()["tokens"] for r in found], [self.server.ask("/tokenize", content=t)["tokens"] for t in texts])
        # One after a stream, on the same connection.
        chat = json.dumps({**BODIES[CHAT], "stream": True, "max_tokens": 20}).encode()
        data = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(chat)}\r\n\r\n".encode() + chat
        found = replies(self.server.raw(data + data + request("a", True)))
        self.assertEqual([r.status for r in found], [200, 200, 200])
        for r in found[:2]:
            self.assertTrue(serve.Events(r.body).finish_reason)
        self.unharmed()

    def test_keep_alive_and_what_ends_it(self):
        with socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) as s:
            for _ in range(20):
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                data = b""
                while b'"ok"}' not in data:
                    data += s.recv(4096)
        # HTTP/1.0 closes unless told otherwise, and gets no chunks.
        chat = json.dumps({**BODIES[CHAT], "stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(chat)}\r\n\r\n".encode()
        answer = self.server.raw(head + chat)
        self.assertNotIn(b"chunked", answer.partition(b"\r\n\r\n")[0].lower())
        self.assertTrue(serve.Events(answer.partition(b"\r\n\r\n")[2]).finish_reason)
        (r,) = replies(self.server.raw(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"))
        self.assertEqual(r.status, 200)

    def test_expect_100(self):
        body = json.dumps(BODIES["/tokenize"]).encode()
        with socket.create_connection((self.server.host, self.server.port), timeout=serve.PATIENCE) as s:
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.assertEqual(s.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            s.sendall(body)
            self.assertEqual(replies(serve.read_all(s))[0].status, 200)

    def test_no_request_names_a_file(self):
        secret = "models/tiny/config.json"
        for path in (f"/{secret}", f"/../{secret}", f"/web/../../{secret}", "/web/..%2f..%2fetc%2fpasswd", "/web//etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/etc/passwd",
                     "/web/\\..\\..\\etc\\passwd", "/v1/models/../../etc/passwd", "/v1/models/%2fetc%2fpasswd", "file:///etc/passwd", "http://localhost/etc/passwd"):
            for method in ("GET", "HEAD"):
                with self.subTest(path=path, method=method):
                    r = self.send(method, path, [("Host", "localhost")])
                    self.assertEqual(r.status, 404)
                    self.assertNotIn(b"root:", r.body)
                    self.assertNotIn(b"hidden_size", r.body)
        for field in ("model", "lora", "cache_dir", "chat_template", "template", "prompt_file", "grammar_file", "path"):
            r = self.server.post(CHAT, {**BODIES[CHAT], field: "/etc/passwd"})
            self.assertTrue(r.status == 404 if field == "model" else field in r.ignored, field)

    def test_methods_of_websockets_and_proxies_get_nothing(self):
        r = self.send("GET", CHAT, [("Host", "localhost"), ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "eA=="), ("Sec-WebSocket-Version", "13")])
        self.assertEqual(r.status, 405)
        answer = self.server.raw(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        self.assertNotIn(b" 200 ", answer[:20])
        self.unharmed()


if __name__ == "__main__":
    serve.main()
