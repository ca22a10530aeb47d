#!/usr/bin/env python3
"""A stand-in hub on two ports of this machine, for the tests of `lily pull`.

Prints "PORT PORT" and serves until its standard input closes. The name of a repository picks how it misbehaves: see REPOS.
GET /_log tells what was asked, as a JSON list.
"""
import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_stand_in"


def noise(seed: str, size: int) -> bytes:
    out = bytearray()
    counter = 0
    while len(out) < size:
        out += hashlib.sha256(f"{seed}{counter}".encode()).digest()
        counter += 1
    return bytes(out[:size])


SHARD = noise("shard", 300_000)
BASE = {
    "config.json": b'{"model_type": "qwen3_5_moe"}',
    "tokenizer.json": b'{"model": {}}',
    "README.md": b"# a model\n",
    "model.safetensors": SHARD,
    "pytorch_model.bin": noise("bin", 5000),
    "onnx/model.onnx": noise("onnx", 5000),
}
SHARDED = {name: data for name, data in BASE.items() if name != "model.safetensors"} | {
    "model-1.safetensors": noise("one", 20_000),
    "model-2.safetensors": noise("two", 30_000),
    "stray.safetensors": noise("stray", 1000),
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}).encode(),
}


def index_of(shard: str) -> dict[str, bytes]:
    return SHARDED | {"model.safetensors.index.json": json.dumps({"weight_map": {"a": shard}}).encode()}


REAL = BASE | {"config.json": (Path(__file__).resolve().parents[2] / "models/tiny/config.json").read_bytes()}

# name → files and quirks
REPOS: dict[str, dict] = {
    "good": {"files": BASE},
    "slow": {"files": BASE, "slow": True},
    "real": {"files": REAL},                               # a config that Lily takes; the weights are noise
    "real-slow": {"files": REAL, "slow": True},
    "foreign": {"files": BASE | {"config.json": b'{"model_type": "other"}'}},
    "sharded": {"files": SHARDED},
    "paged": {"files": SHARDED, "page": 3},
    "no-shard": {"files": index_of("model-9.safetensors")},
    "index-escapes": {"files": index_of("../model-1.safetensors")},
    "no-tokenizer": {"files": {k: v for k, v in BASE.items() if k != "tokenizer.json"}},
    "no-weights": {"files": {k: v for k, v in BASE.items() if k != "model.safetensors"}},
    "cut": {"files": BASE, "cut_first": 150_000},          # the first transfer of the shard breaks off
    "norange": {"files": BASE, "cut_first": 150_000, "norange": True},
    "wrong-range": {"files": BASE, "cut_first": 150_000, "wrong_range": True},
    "changed": {"files": BASE, "cut_first": 150_000, "first_data": noise("old", 300_000)},
    "spliced": {"files": BASE, "cut_first": 150_000, "first_data": noise("old", 300_000), "ignore_if_range": True},
    "dead": {"files": BASE, "cut_always": True},
    "busy": {"files": BASE, "busy": 2},                    # 503 twice, then well
    "bad-hash": {"files": BASE, "listed_hash": "0" * 64},
    "bad-config": {"files": BASE, "serve": {"config.json": b'{"model_type": "qwen3_5_mOe"}'}},
    "long": {"files": BASE, "serve": {"model.safetensors": SHARD + b"more"}},
    "gone": {"files": BASE, "gone": "model.safetensors"},
    "private": {"files": BASE, "private": True},
    "redirect": {"files": BASE, "private": True, "redirect": True},
    "loop": {"files": BASE, "loop": True},
    "not-json": {"files": BASE, "listing": b"<html>"},
    "no-size": {"files": BASE, "listing": json.dumps([{"type": "file", "path": "config.json"}]).encode()},
    "up": {"files": BASE | {"../../evil.json": b"{}"}},
    "absolute": {"files": BASE | {"/tmp/evil.json": b"{}"}},
    "backslash": {"files": BASE | {"..\\evil.json": b"{}"}},
    "control": {"files": BASE | {"evil\x1b[2J.json": b"{}"}},
    "dots": {"files": BASE | {"a/./b.json": b"{}"}},
}


class Hub(ThreadingHTTPServer):
    daemon_threads = True
    log: list[dict] = []
    seen: dict[str, int] = {}  # how often a repository's shard was asked for
    lock = threading.Lock()

    def handle_error(self, request, client_address):
        pass  # a client that went away is what some tests are about


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args):
        pass

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/_log":
            self.reply(200, json.dumps(Hub.log).encode())
            return
        Hub.log.append({"port": self.server.server_port, "path": self.path, "token": self.headers.get("Authorization"),
                        "range": self.headers.get("Range"), "if_range": self.headers.get("If-Range")})
        parts = url.path.strip("/").split("/")
        if parts[0] == "cdn":
            name, path = parts[1], unquote(parts[2])
        elif parts[:2] == ["api", "models"]:
            name, path = parts[3], None
        else:
            name, path = parts[1], unquote(parts[4])
        repo = REPOS.get(name)
        if repo is None:
            self.reply(404, b"{}", {"X-Error-Message": "Repository not found"})
        elif repo.get("private") and parts[0] != "cdn" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.reply(401, b"{}")
        elif path is None:
            self.api(repo, parts, url.query)
        elif parts[0] != "cdn" and repo.get("redirect"):
            other = next(port for port in PORTS if port != self.server.server_port)
            self.reply(302, b"", {"Location": f"http://127.0.0.1:{other}/cdn/{name}/{path}?signature=x"})
        elif repo.get("loop"):
            self.reply(302, b"", {"Location": self.path})
        else:
            self.file(name, repo, path)

    def api(self, repo: dict, parts: list[str], query: str):
        if parts[4] == "revision":
            if unquote(parts[5]) in ("main", "refs/pr/1", COMMIT):
                self.reply(200, json.dumps({"sha": COMMIT, "siblings": []}).encode())
            else:
                self.reply(404, b"{}", {"X-Error-Message": "Invalid rev id"})
            return
        if "listing" in repo:
            self.reply(200, repo["listing"])
            return
        entries = [{"type": "directory", "path": "onnx", "oid": "0" * 40, "size": 0}]
        for path, data in repo["files"].items():
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry = {"type": "file", "path": path, "size": len(data), "oid": blob}
            if path.endswith((".safetensors", ".bin", ".onnx")):
                digest = repo.get("listed_hash") or hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 130}
            entries.append(entry)
        size = repo.get("page", len(entries))
        start = int(dict(p.split("=") for p in query.split("&")).get("cursor", 0))
        headers = {}
        if start + size < len(entries):
            headers["Link"] = f'<{urlsplit(self.path).path}?recursive=true&cursor={start + size}>; rel="next"'
        self.reply(200, json.dumps(entries[start:start + size]).encode(), headers)

    def file(self, name: str, repo: dict, path: str):
        if path == repo.get("gone"):
            self.reply(404, b"Entry not found")
            return
        data = repo.get("serve", {}).get(path, repo["files"].get(path))
        if data is None:
            self.reply(404, b"Entry not found")
            return
        if not path.endswith(".safetensors"):
            self.reply(200, data)
            return
        with Hub.lock:
            turn = Hub.seen[name] = Hub.seen.get(name, 0) + 1
        if turn <= repo.get("busy", 0):
            self.reply(503, b"busy")
            return
        if turn == 1:
            data = repo.get("first_data", data)
        etag = '"' + hashlib.md5(data).hexdigest() + '"'
        start = self.asked_start(repo, etag, len(data))
        wrong = 7 if repo.get("wrong_range") and start else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start - wrong}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(data) - start + wrong))
        self.end_headers()
        self.body(repo, data[start - wrong:], turn)

    def asked_start(self, repo: dict, etag: str, size: int) -> int:
        asked = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        if not asked or repo.get("norange") or (condition and condition != etag and not repo.get("ignore_if_range")):
            return 0
        return min(int(asked.removeprefix("bytes=").rstrip("-")), size - 1)

    def body(self, repo: dict, data: bytes, turn: int):
        stop = len(data)
        if repo.get("cut_always"):
            stop = 0
        elif turn == 1:
            stop = repo.get("cut_first", stop)
        for at in range(0, stop, 10_000):
            self.wfile.write(data[at:min(at + 10_000, stop)])
            self.wfile.flush()
            if repo.get("slow"):
                time.sleep(0.03)
        if stop < len(data):
            self.close_connection = True


def main():
    servers = [Hub(("127.0.0.1", 0), Handler) for _ in range(2)]
    PORTS.extend(server.server_port for server in servers)
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*PORTS, flush=True)
    sys.stdin.read()


PORTS: list[int] = []
if __name__ == "__main__":
    main()
