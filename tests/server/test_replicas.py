"""Two servers behind HAProxy, as docs/examples/haproxy.cfg has it: affinity by conversation, and a drain that loses nothing."""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(os.environ.get("LILY_SOURCE_DIR", Path(__file__).resolve().parent.parent.parent))
BIN = os.environ.get("LILY_BIN", str(ROOT / "build" / "lily"))
HAPROXY = shutil.which("haproxy") or next((p for p in ["/usr/sbin/haproxy"] if Path(p).exists()), None)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as r:
            return r.status, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()
    except OSError:
        return 0, b""


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def ask(port, messages, **more):
    body = {"messages": messages, "temperature": 0, "enable_thinking": False, **more}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return json.load(r)


@unittest.skipUnless(HAPROXY, "no haproxy here")
class Replicas(unittest.TestCase):
    def setUp(self):
        self.ports = [free_port(), free_port()]
        self.front = free_port()
        self.children = []
        self.addCleanup(self.end)
        for port in self.ports:
            self.children.append(subprocess.Popen([BIN, "serve", "tiny", "--port", str(port)], stderr=subprocess.DEVNULL))
        text = (ROOT / "docs/examples/haproxy.cfg").read_text()
        for name, port in {"8001": self.ports[0], "8002": self.ports[1], "8080": self.front}.items():
            self.assertIn(f"127.0.0.1:{name}", text)
            text = text.replace(f"127.0.0.1:{name}", f"127.0.0.1:{port}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config = Path(folder.name) / "haproxy.cfg"
        config.write_text(text)
        for port in self.ports:
            wait_for(lambda: get(port, "/health")[0] == 200)
        self.proxy = subprocess.Popen([HAPROXY, "-db", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(self.proxy)
        wait_for(lambda: get(self.front, "/health")[0] == 200)

    def end(self):
        for child in self.children:
            child.kill()
            child.wait()

    def requests(self):
        def count(port):
            status, text = get(port, "/metrics")
            return next((int(float(line.split()[1])) for line in text.decode().split("\n") if line.startswith("lily_requests_total")), 0)
        return [count(port) for port in self.ports]

    def test_a_conversation_stays_where_its_cache_is(self):
        for with_system in [True, False]:
            for n in range(8):
                messages = [{"role": "system", "content": "Be brief."}] if with_system else []
                messages.append({"role": "user", "content": f"My age is {20 + n}."})
                homes = set()
                for turn in range(3):
                    before = self.requests()
                    answer = ask(self.front, messages)
                    homes.add(tuple(b - a for a, b in zip(before, self.requests())).index(1))
                    if turn > 0:
                        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                    messages.append(answer["choices"][0]["message"])
                    messages.append({"role": "user", "content": "How old am I?"})
                self.assertEqual(len(homes), 1)
        self.assertTrue(all(n > 0 for n in self.requests()), "all went to one server")

    def test_a_server_that_ends_loses_no_request(self):
        failed, done, stop = [], [], threading.Event()

        def client(n):
            turn = 0
            while not stop.is_set():
                turn += 1
                try:
                    done.append(ask(self.front, [{"role": "user", "content": f"Copy this: {n} {turn}"}], max_tokens=20)["usage"])
                except Exception as e:  # pylint: disable=broad-except
                    failed.append(repr(e))

        clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for c in clients:
            c.start()
        wait_for(lambda: len(done) > 20)
        self.children[0].send_signal(signal.SIGTERM)
        self.assertEqual(self.children[0].wait(60), 0)
        after = len(done)
        wait_for(lambda: len(done) > after + 20)
        stop.set()
        for c in clients:
            c.join()
        self.assertEqual(failed, [])


if __name__ == "__main__":
    unittest.main()
