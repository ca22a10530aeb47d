"""Conversations on disk (--cache-dir): they survive an end and a kill, and nothing else is ever taken for one."""
import os
import signal
import stat
import tempfile
import time
import unittest
from pathlib import Path

from serve import Server, main

SYSTEM = {"role": "system", "content": "Shared rules. " + " ".join(f"Point {i}." for i in range(120))}
FIRST = [SYSTEM, {"role": "user", "content": "My age is 75."}]
OFF = {"enable_thinking": False}


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


class Store(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "conversations"
        with Server() as plain:
            self.answer = plain.chat(FIRST, **OFF)["choices"][0]["message"]
            self.next = [*FIRST, self.answer, {"role": "user", "content": "How old am I?"}]
            self.truth = plain.chat(self.next, **OFF)["choices"][0]["message"]

    def server(self, *flags):
        return Server("--cache-dir", self.folder, *flags)

    def files(self):
        return [p for p in self.folder.rglob("*") if p.is_file()]

    def goes_on(self, s, expect_hit):
        reply = s.chat(self.next, **OFF)
        self.assertEqual(reply["choices"][0]["message"]["content"], self.truth["content"])
        self.assertEqual(cached(reply) > 0, expect_hit, reply["usage"])

    def fill(self):
        with self.server() as s:
            s.chat(FIRST, **OFF)

    def test_a_conversation_goes_on_after_an_end(self):
        self.fill()
        with self.server() as s:
            self.goes_on(s, True)
            last = s.status()["last_request"]  # parts from what was read in, not from an empty memory
            self.assertGreaterEqual(last["parted_at"], last["cached_tokens"])

    def test_files_are_their_owners_alone(self):
        self.fill()
        self.assertTrue(self.files())
        for path in self.files():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)

    def test_what_was_written_before_a_kill_is_there_and_nothing_half_written_counts(self):
        for wait_for_files in [True, False]:  # at rest, and in the middle of writing
            s = self.server()
            s.__enter__()
            s.chat(FIRST, **OFF)
            end = time.monotonic() + 60
            while wait_for_files and not any(p.name.startswith("st-") for p in self.files()) and time.monotonic() < end:
                time.sleep(0.02)
            s.child.send_signal(signal.SIGKILL)
            s.stop(expected=-signal.SIGKILL)
            with self.server() as again:
                reply = again.chat(self.next, **OFF)
                self.assertEqual(reply["choices"][0]["message"]["content"], self.truth["content"])

    def test_a_cut_file_is_a_miss(self):
        self.fill()
        for path in self.files():
            os.truncate(path, path.stat().st_size // 2)
        with self.server() as s:
            self.goes_on(s, False)

    def test_a_changed_file_is_a_miss(self):
        self.fill()
        for path in self.files():
            data = bytearray(path.read_bytes())
            data[len(data) - 100] ^= 1
            path.write_bytes(data)
        s = self.server()
        s.expected_log = ["is damaged; it is removed"]
        with s:
            self.goes_on(s, False)

    def test_another_arithmetic_or_tool_list_is_a_miss(self):
        self.fill()
        with self.server("--exact") as s:
            self.assertEqual(cached(s.chat(self.next, **OFF)), 0)
        with self.server() as s:
            tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
            self.assertEqual(cached(s.chat(self.next, tools=tools, **OFF)), 0)

    def test_a_place_that_cannot_be_written_is_told(self):
        with self.assertRaisesRegex(AssertionError, "--cache-dir"):
            Server("--cache-dir", "/dev/null/x").__enter__()


if __name__ == "__main__":
    main()
