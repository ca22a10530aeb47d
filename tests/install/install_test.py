#!/usr/bin/env python3
"""make install and make uninstall, into a folder of their own: the installed program finds the installed model.

Usage: install_test.py BUILD_DIR (of the release preset)
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build")


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.stage = Path(self.folder.name)
        # As `make install` does it, less the build, which must not run inside a test.
        done = run("cmake", "--install", str(BUILD), "--prefix", "/opt/x", env=os.environ | {"DESTDIR": str(self.stage)})
        self.assertEqual(done.returncode, 0, done.stderr)

    def tearDown(self):
        self.folder.cleanup()

    def test_the_program_finds_its_model_wherever_it_is_moved_to(self):
        moved = self.stage / "moved"
        (self.stage / "opt/x").rename(moved)
        seen = run(str(moved / "bin/lily"), "inspect", "tiny", cwd="/")
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertIn(str(moved / "share/lily/models/tiny"), seen.stdout)

    def test_uninstall_leaves_nothing(self):
        done = run("make", "uninstall", f"DESTDIR={self.stage}", "PREFIX=/opt/x", cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path for path in self.stage.rglob("*") if path.is_file()], [])


if __name__ == "__main__":
    unittest.main()
