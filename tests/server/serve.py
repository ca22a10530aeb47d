"""A running `lily serve` for a test, and clients of it that do nothing on their own: what they send is what was asked for.

LILY_BIN is the program, LILY_SOURCE_DIR the project's root; both are set by ctest. LILY_PATIENCE is set for a program that is slow.
"""
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(os.environ.get("LILY_SOURCE_DIR", Path(__file__).resolve().parent.parent.parent))
BIN = os.environ.get("LILY_BIN", str(ROOT / "build" / "lily"))
LONG = bool(os.environ.get("LILY_LONG"))  # set for the variants that take minutes
PATIENCE = int(os.environ.get("LILY_PATIENCE", 120))  # seconds until something is taken to hang; nothing is expected to take long
JSON = {"Content-Type": "application/json"}


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {k.lower(): v for k, v in headers}
        self.body = body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]

    @property
    def ignored(self):
        return sorted(filter(None, self.headers.get("x-lily-ignored", "").split(", ")))


def run_lily(*args, stdin=""):
    """The standard output of another command of the same program."""
    done = subprocess.run([BIN, *map(str, args)], input=stdin.encode(), capture_output=True, timeout=PATIENCE, check=True)
    return done.stdout.decode()


class Server:
    """`with Server("--flag") as s:` ends the program afterwards, and fails where it died or logged what it should not have."""

    def __init__(self, *flags, env=None, model="tiny", port="0"):
        # One thread unless a test is about them: tests run beside each other, and threads of one server that wait for each other
        # wait long where others have the processors.
        threads = () if "--threads" in flags else ("--threads", "1")
        self.args = [BIN, "serve", model, "--port", port, *threads, *map(str, flags)]
        self.env = {**os.environ, **(env or {})}
        self.env.pop("LILY_API_KEY", None)
        self.env.update(env or {})
        self.log = []
        self.expected_log = []  # patterns of lines that a test provokes
        self.stopped = False

    def __enter__(self):
        self.child = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=self.env)
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        if not self.ready.wait(PATIENCE) or not hasattr(self, "port"):
            self.child.kill()
            self.child.wait()
            raise AssertionError("the server did not come up: " + "\n".join(self.log))
        return self

    def _read_log(self):
        for line in self.child.stderr:
            text = line.decode("utf-8", "replace").rstrip("\n")
            self.log.append(text)
            where = re.search(r"http://(\[[^\]]+\]|[^:/\s]+):(\d+)", text)
            if where and not self.ready.is_set():
                self.host, self.port = where[1].strip("[]"), int(where[2])
                self.ready.set()
        self.ready.set()

    def __exit__(self, kind, value, trace):
        try:
            self.stop()
        except AssertionError:
            if kind is None:
                raise

    def stop(self, expected=0):
        if self.stopped:
            return
        self.stopped = True
        if self.child.poll() is not None and self.child.returncode != expected:
            self._reap()
            raise AssertionError(f"the server died with {self.child.returncode}: " + "\n".join(self.log))
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self._reap()
            raise AssertionError("SIGTERM did not end the server: " + "\n".join(self.log)) from None
        self._reap()
        if self.child.returncode != expected:
            raise AssertionError(f"the server ended with {self.child.returncode}: " + "\n".join(self.log))
        usual = [r"memory: weights", r"http://", r"ending: running answers", r"which has no effect here", *self.expected_log]
        odd = [line for line in self.log if not any(re.search(p, line) for p in usual)]
        if odd:
            raise AssertionError("the server complained: " + "\n".join(odd))

    def _reap(self):
        self.child.wait()
        self.reader.join(PATIENCE)
        self.child.stdout.close()
        self.child.stderr.close()

    # ---- asking ----

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def alive(self):
        return self.child.poll() is None

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE):
        """`body`: bytes or text as they are, anything else as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        try:
            connection.request(method, path, body, {**(JSON if body is not None else {}), **(headers or {})})
            r = connection.getresponse()
            return Reply(r.status, r.getheaders(), r.read())
        finally:
            connection.close()

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.request("POST", path, body, **kwargs)

    def ask(self, path="/v1/chat/completions", headers=None, **body):
        """A request that is to succeed; its JSON."""
        r = self.post(path, body, headers=headers)
        if r.status != 200:
            raise AssertionError(f"{path} {json.dumps(body)[:400]}: {r.status} {r.body[:600]}")
        return r.json()

    def chat(self, messages, **body):
        """Greedy unless told otherwise."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.ask(**{"messages": messages, "temperature": 0, **body})

    def complete(self, prompt, **body):
        return self.ask("/v1/completions", **{"prompt": prompt, "temperature": 0, **body})

    def stream(self, path="/v1/chat/completions", **body):
        """A whole stream: Events."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), JSON)
            r = connection.getresponse()
            if r.status != 200:
                raise AssertionError(f"{path} {json.dumps(body)[:400]}: {r.status} {r.read()[:600]}")
            if not r.getheader("content-type").startswith("text/event-stream"):
                raise AssertionError(f"a stream of type {r.getheader('content-type')}")
            return Events(r.read())
        finally:
            connection.close()

    def stream_chat(self, messages, **body):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.stream(**{"messages": messages, "temperature": 0, **body})

    def raw(self, data, timeout=PATIENCE):
        """Sends bytes as they are, and reads until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as s:
            s.sendall(data)
            return read_all(s)

    def status(self):
        return self.get("/status").json()

    def idle(self, within):
        """Polls until nothing runs or waits; the seconds it took."""
        begin = time.monotonic()
        while True:
            s = self.status()
            if s["slots"]["running"] == 0 and s["queue"]["waiting"] == 0:
                return time.monotonic() - begin
            if time.monotonic() - begin > within:
                raise AssertionError(f"still busy after {within} s: {s['slots']} {s['queue']}")
            time.sleep(0.01)

    def rss(self):
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.child.pid}/status").read_text())[1]) << 10

    def probe(self):
        """A fixed answer with its log probabilities: must be the same, to the bit, whatever came before."""
        r = self.chat([{"role": "system", "content": "You are a helpful assistant."},
                       {"role": "user", "content": "Name an antonym of heavy."}],
                      enable_thinking=False, logprobs=True, top_logprobs=5)
        choice = r["choices"][0]
        return choice["message"]["content"], json.dumps(choice["logprobs"])


def read_all(s):
    out = b""
    try:
        while piece := s.recv(65536):
            out += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return out


def replies(data):
    """The replies in what a connection gave: (status, headers in lower case, body). Bodies by length or in chunks."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size, _, data = data.partition(b"\r\n")
                n = int(size, 16)
                body, data = body + data[:n], data[n + 2:]
                if n == 0:
                    break
        elif "content-length" in headers:
            n = int(headers["content-length"])
            body, data = data[:n], data[n:]
        else:
            body, data = data, b""
        found.append(Reply(status, headers.items(), body))
    return found


class Events:
    """A stream of events, joined to what the answer would be without streaming. Raises where it is not formed as the API says."""

    def __init__(self, data):
        text = data.decode("utf-8")  # no delta may hold half a character
        if not text.endswith("\n\n"):
            raise AssertionError(f"cut: …{text[-200:]!r}")
        self.comments, events = [], []
        for block in text[:-2].split("\n\n"):
            if block.startswith(":"):
                self.comments.append(block)
            elif block.startswith("data: ") and "\n" not in block:
                events.append(block[6:])
            else:
                raise AssertionError(f"no event: {block!r}")
        if not events or events[-1] != "[DONE]":
            raise AssertionError(f"does not end in [DONE]: {events[-1:]}")
        self.chunks = [json.loads(e) for e in events[:-1]]
        self.error = next((c["error"] for c in self.chunks if "error" in c), None)
        self.chunks = [c for c in self.chunks if "error" not in c]
        self.usage = self.timings = self.finish_reason = None
        self.content = self.reasoning = ""
        self.calls, self.deltas, self.logprobs = [], [], None
        self.completion_logprobs = {}
        for chunk in self.chunks:
            self._add(chunk)

    def _add(self, chunk):
        for key in ("id", "object", "created", "model"):
            if chunk[key] != self.chunks[0][key]:
                raise AssertionError(f"{key} changes within a stream")
        if not chunk["choices"]:
            self.usage, self.timings = chunk["usage"], chunk["timings"]
            return
        (choice,) = chunk["choices"]
        if self.finish_reason is not None:
            raise AssertionError("a delta after finish_reason")
        self.finish_reason = choice["finish_reason"]
        if "text" in choice:
            self.content += choice["text"]
            for key, values in (choice.get("logprobs") or {}).items():
                self.completion_logprobs.setdefault(key, []).extend(values)
            return
        delta = choice["delta"]
        self.deltas.append(delta)
        self.content += delta.get("content") or ""
        self.reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", []):
            if call["index"] == len(self.calls):
                self.calls.append({"id": call["id"], "type": call["type"],
                                   "function": {"name": call["function"]["name"], "arguments": ""}})
            elif call["index"] != len(self.calls) - 1:
                raise AssertionError(f"call {call['index']} after call {len(self.calls) - 1}")
            self.calls[-1]["function"]["arguments"] += call["function"].get("arguments", "")
        if choice.get("logprobs"):
            self.logprobs = (self.logprobs or []) + choice["logprobs"]["content"]

    @property
    def message(self):
        """As the message of an answer that is not streamed."""
        m = {"role": "assistant", "content": self.content}
        if self.calls:
            m["content"] = self.content or None
            m["tool_calls"] = self.calls
        if self.reasoning:
            m["reasoning_content"] = self.reasoning
        return m


def without_ids(message):
    """A message whose calls' ids, which are random, are left out."""
    m = dict(message)
    if "tool_calls" in m:
        m["tool_calls"] = [{k: v for k, v in call.items() if k != "id"} for call in m["tool_calls"]]
    return m


def tool(name, parameters, required=None, description="", **more):
    return {"type": "function", "function": {"name": name, "description": description or name, "parameters": {
        "type": "object", "properties": parameters, "required": list(parameters) if required is None else required, **more}}}


# Tools the bundled model was trained on.
WEATHER = tool("get_weather", {"city": {"type": "string"}}, description="Get the current weather for a city")
READ = tool("read_file", {"path": {"type": "string"}}, description="Read a file")
WRITE = tool("write_file", {"path": {"type": "string"}, "content": {"type": "string"}}, description="Write a file")
TIMER = tool("set_timer", {"seconds": {"type": "integer"}}, description="Set a timer")


class Case(unittest.TestCase):
    """Tests that share one server, started with `flags`."""
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        self.assertTrue(self.server.alive(), "the server died: " + "\n".join(self.server.log))

    def refused(self, reply, status, param=None, words=(), code=None):
        """An error object of the API, with all that a client's library reads of it."""
        self.assertEqual(reply.status, status, reply.body[:500])
        self.assertEqual(reply.headers["content-type"], "application/json")
        error = reply.error
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertTrue(error["message"])
        if param is not None:
            self.assertEqual(error["param"], param, error)
        if code is not None:
            self.assertEqual(error["code"], code)
        for word in words:
            self.assertIn(str(word), error["message"])
        return error


def in_parallel(jobs):
    """Runs functions at the same time, in threads; their results in order. The first exception is raised."""
    results, errors = [None] * len(jobs), []
    start = threading.Barrier(len(jobs))

    def run(i):
        try:
            start.wait(PATIENCE)
            results[i] = jobs[i]()
        except BaseException as e:  # to be raised by the test's thread
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE * 2)
    if errors:
        raise errors[0]
    return results


def readable(s, timeout):
    return bool(select.select([s], [], [], timeout)[0])


def main():
    if not Path(BIN).exists():
        sys.exit(f"{BIN} is not there: build the target lily first")
    unittest.main()
