#!/usr/bin/env python3
"""tools/embed_files.py: every byte of every file arrives in the program."""
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMPILER = os.environ.get("CXX") or shutil.which("c++")

# Prints what the table holds: path, type, size, bytes in hexadecimal.
PROGRAM = """
#include <cstdio>
#include "web.cpp"
int main() {
  using namespace lily::server;
  for (unsigned at = 0; at < kWebFileCount; ++at) {
    std::printf("%s|%s|%lu|", kWebFiles[at].path, kWebFiles[at].content_type, kWebFiles[at].size);
    for (unsigned long byte = 0; byte < kWebFiles[at].size; ++byte) std::printf("%02x", kWebFiles[at].data[byte]);
    std::puts("");
  }
}
"""


class Embed(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.web = self.folder / "web"
        (self.web / "vendor").mkdir(parents=True)
        self.out = self.folder / "web.cpp"

    def embed(self) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-B", ROOT / "tools" / "embed_files.py", self.out, self.web],
                              capture_output=True, text=True, check=False)

    @unittest.skipUnless(COMPILER, "no C++ compiler")
    def test_every_byte_arrives(self):
        files = {"index.html": b"<!doctype html>\n", "a.css": b"", "vendor/b.js": bytes(range(256)) * 3}
        for name, data in files.items():
            (self.web / name).write_bytes(data)
        self.assertEqual(self.embed().returncode, 0)
        (self.folder / "main.cpp").write_text(PROGRAM)
        subprocess.run([*shlex.split(COMPILER or ""), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "src", "-o", self.folder / "main",
                        self.folder / "main.cpp"], check=True)
        printed = subprocess.run([self.folder / "main"], capture_output=True, text=True, check=True).stdout
        types = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
        self.assertEqual(sorted(printed.splitlines()), sorted(
            f"{'/' if name == 'index.html' else '/web/' + name}|{types[name.split('.')[-1]]}|{len(data)}|{data.hex()}"
            for name, data in files.items()))

    def test_the_page_of_this_project_can_be_embedded(self):
        self.web = ROOT / "src" / "server" / "web"
        self.assertEqual(self.embed().returncode, 0)
        for path in ['{"/", "text/html', '{"/web/app.js", "text/javascript', '{"/web/vendor/purify.min.js"']:
            self.assertIn(path, self.out.read_text())

    def test_it_is_rewritten_only_when_something_changed(self):
        (self.web / "index.html").write_text("one")
        self.embed()
        os.utime(self.out, (1, 1))
        self.embed()
        self.assertEqual(self.out.stat().st_mtime, 1)
        (self.web / "index.html").write_text("two")
        self.embed()
        self.assertGreater(self.out.stat().st_mtime, 1)

    def test_what_cannot_be_served_is_named(self):
        self.assertIn("no index.html", self.embed().stderr)
        (self.web / "index.html").write_text("x")
        (self.web / "a.exe").write_text("x")
        self.assertRegex(self.embed().stderr, r"a\.exe: no content type is known for '\.exe'")


if __name__ == "__main__":
    unittest.main()
