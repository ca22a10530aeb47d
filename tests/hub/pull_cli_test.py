#!/usr/bin/env python3
"""`lily pull` as a person runs it, against the stand-in hub: what it prints, its exit status, Ctrl-C.

Usage: pull_cli_test.py LILY
"""
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

LILY = sys.argv.pop(1) if len(sys.argv) > 1 else ""
SERVER = Path(__file__).resolve().parent / "hub_server.py"


class Pull(unittest.TestCase):
    def setUp(self):
        self.hub = subprocess.Popen([sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    text=True)
        port = self.hub.stdout.readline().split()[0]
        self.cache = tempfile.TemporaryDirectory()
        self.models = Path(self.cache.name) / "lily/models"
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.cache.name, "XDG_CACHE_HOME": self.cache.name,
                            "HF_ENDPOINT": f"http://127.0.0.1:{port}"}

    def tearDown(self):
        self.hub.stdin.close()
        self.hub.wait()
        self.hub.stdout.close()
        self.cache.cleanup()

    def pull(self, *words, **options):
        return subprocess.run([LILY, "pull", *words], env=self.environment, capture_output=True, text=True, timeout=60,
                              check=False, **options)

    def refused(self, run, status, *parts):
        self.assertEqual(run.returncode, status, run.stderr)
        self.assertEqual(run.stdout, "")
        for part in parts:
            self.assertIn(part, run.stderr)

    def test_says_where_it_is_and_what_comes_next(self):
        run = self.pull("acme/real")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, f"{self.models / 'real'}\nNow: lily run real 'Hello'\n")
        self.assertIn("verified", run.stderr)
        self.assertEqual((self.models / "real/model.safetensors").stat().st_size, 300_000)
        again = self.pull("acme/real", "--name", "other")
        self.assertIn("lily run other", again.stdout)

    def test_needs_a_hub_and_a_repository(self):
        self.refused(self.pull(), 2, "REPO")
        self.refused(self.pull("../x"), 1, "OWNER/NAME")
        del self.environment["HF_ENDPOINT"]
        self.refused(self.pull("acme/real"), 1, "HF_ENDPOINT is not set")

    def test_a_model_of_another_family_is_refused_before_its_weights_come(self):
        self.refused(self.pull("acme/foreign"), 1, "config.json", "other")
        self.assertFalse(self.models.exists())

    def test_a_token_is_told_of(self):
        self.refused(self.pull("acme/private"), 1, "HF_TOKEN")

    def test_ctrl_c_keeps_the_part_and_the_same_command_goes_on(self):
        run = subprocess.Popen([LILY, "pull", "acme/real-slow"], env=self.environment, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        part = self.models / "real-slow/model.safetensors.part"
        for _ in range(500):
            if part.exists() and part.stat().st_size > 50_000:
                break
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=20)
        self.assertEqual((run.returncode, out), (-signal.SIGINT, ""), err)
        self.assertIn("run the same command again to go on", err)
        kept = part.stat().st_size
        self.assertTrue(50_000 < kept < 300_000, kept)
        self.assertEqual(self.pull("acme/real-slow").returncode, 0)
        self.assertFalse(part.exists())

    def test_no_room_is_an_error_and_not_a_death(self):
        limit = (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        run = self.pull("acme/real", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        self.refused(run, 1, "200000 more bytes are needed")


if __name__ == "__main__":
    unittest.main()
