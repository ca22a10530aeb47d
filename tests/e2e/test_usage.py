"""Exit status, messages, help, pipes: what scripts rely on whatever the command."""
import json
import os
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from lily import BIN, ROOT, TINY, fails, lily, main, ok

COMMANDS = ["run", "chat", "bench", "logits", "eval", "tokenize", "detokenize", "template", "inspect", "synth", "quantize"]


class Usage(unittest.TestCase):
    def test_help_goes_to_stdout_and_names_every_command(self):
        r = ok(self, "--help")
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", r.out)
        self.assertEqual(r.err, "")
        self.assertRegex(ok(self, "--version").out, r"^lily \d+\.\d+\.\d+\n$")

    def test_each_command_has_help_with_examples_and_the_common_options(self):
        for command in COMMANDS:
            r = ok(self, command, "--help")
            for word in ["examples:", f"usage: lily {command}", "--help", "--backend auto|cpu|cuda|metal|reference",
                         "--threads N", "--exact", "--prefill-activations int8|bf16", "--decode-activations int8|bf16", "--mlock", "-v, --verbose"]:
                self.assertIn(word, r.out, command)
            self.assertEqual(r.out, ok(self, "help", command).out)
            self.assertEqual(r.out, ok(self, command, "-h").out)

    def test_options_md_is_what_the_tables_say(self):
        self.assertEqual((ROOT / "docs" / "OPTIONS.md").read_text(), ok(self, "help", "--markdown").out,
                         "run: build/lily help --markdown > docs/OPTIONS.md")

    def test_wrong_usage_is_status_2_and_names_what_is_wrong(self):
        for words, args in [
                (["command", "--help"], []),
                (["frobnicate"], ["frobnicate"]),
                (["--frob"], ["--frob"]),
                (["MODEL"], ["run"]),
                (["--frob"], ["run", "tiny", "--frob", "x"]),
                (["--frob"], ["run", "tiny", "--frob=3", "x"]),
                (["-z"], ["run", "tiny", "-z"]),
                (["'two'"], ["run", "tiny", "one", "two"]),
                (["--temp", "abc"], ["run", "tiny", "x", "--temp", "abc"]),
                (["--temp", "-0.5"], ["run", "tiny", "x", "--temp", "-0.5"]),
                (["--temp", "nan"], ["run", "tiny", "x", "--temp", "nan"]),
                (["--temp", "value"], ["run", "tiny", "x", "--temp"]),
                (["--top-p", "1.5", "0 to 1"], ["run", "tiny", "x", "--top-p", "1.5"]),
                (["--min-p", "-1"], ["run", "tiny", "x", "--min-p=-1"]),
                (["--top-k", "2.5"], ["run", "tiny", "x", "--top-k", "2.5"]),
                (["--top-k", "99999999999999999999"], ["run", "tiny", "x", "--top-k", "99999999999999999999"]),
                (["--max-tokens", "0"], ["run", "tiny", "x", "--max-tokens", "0"]),
                (["--seed", "-1"], ["run", "tiny", "x", "--seed", "-1"]),
                (["--threads", "-1"], ["run", "tiny", "x", "--threads", "-1"]),
                (["--backend", "gpu"], ["run", "tiny", "x", "--backend", "gpu"]),
                (["--prefill-activations"], ["run", "tiny", "x", "--prefill-activations", "fp8"]),
                (["--decode-activations"], ["run", "tiny", "x", "--decode-activations", "int4"]),
                (["--exact", "value"], ["run", "tiny", "x", "--exact=false"]),
                (["--ids"], ["logits", "tiny", "--out", "x"]),
                (["--split", "0"], ["logits", "tiny", "--ids", "a", "--out", "b", "--split", "7,0"]),
                (["--split"], ["logits", "tiny", "--ids", "a", "--out", "b", "--split", "7,"]),
                (["--context", "1"], ["eval", "tiny", "--text", "a", "--context", "1"]),
                (["--bits", "7"], ["quantize", "a", "b", "--bits", "7"]),
                (["lily: give either --preset or --config"], ["synth", "out"]),
                (["--preset", "qwen3.6-35b-a3b", "nosuch"], ["synth", "out", "--preset", "nosuch"]),
                (["--max-tokens", "from 1 to 2147483647"], ["run", "tiny", "x", "--max-tokens", "0"]),
                (["--max-context", "from 0 to 2147483647"], ["run", "tiny", "x", "--max-context", "-1"]),
                (["--cache-bytes", "auto", "k, m or g", "'lots'", "lily serve --help"], ["serve", "tiny", "--cache-bytes", "lots"]),
                (["--host 0.0.0.0", "--api-key", "lily serve --help"], ["serve", "tiny", "--host", "0.0.0.0"]),
                (["--raw", "--system"], ["run", "tiny", "x", "--raw", "--system", "y"]),
                (["--temp"], ["tokenize", "tiny", "x", "--temp", "1"]),  # a flag of another command
                (["frob"], ["help", "frob"]),
        ]:
            with self.subTest(args=args):
                fails(self, 2, words, *args)

    def test_failures_are_status_1_and_name_the_thing_at_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = Path(folder) / "empty"
            empty.mkdir()
            ids = Path(folder) / "ids.json"
            for words, args in [
                    (["nosuch"], ["run", "nosuch", "x"]),
                    ([str(empty)], ["run", empty, "x"]),
                    ([str(empty)], ["tokenize", empty, "x"]),
                    (["--ids", "/nonexistent", "no such file"],
                     ["logits", "tiny", "--ids", "/nonexistent", "--out", "x"]),
                    (["--ids", folder], ["logits", "tiny", "--ids", folder, "--out", "x"]),
                    (["--text", "/nonexistent"], ["eval", "tiny", "--text", "/nonexistent"]),
                    (["--messages", "/nonexistent"], ["template", "tiny", "--messages", "/nonexistent"]),
                    (["lily: --tools /nonexistent: no such file"], ["chat", "tiny", "--tools", "/nonexistent"]),
                    (["IDS", "element 1"], ["detokenize", "tiny", "[1,-2]"]),
                    (["IDS", "element 1"], ["detokenize", "tiny", "[1,2.5]"]),
                    (["IDS"], ["detokenize", "tiny", "[1,"]),
                    (["IDS: not JSON: byte 4"], ["detokenize", "tiny", "[1,"]),
                    (["IDS: element 1 is 'b'"], ["detokenize", "tiny", "1 b"]),
                    (["IDS: element 0 is 8192", "8191"], ["detokenize", "tiny", "8192"]),
                    (["--context 5000", "1 to 4096"], ["inspect", "tiny", "--context", "5000"]),
                    (["--context 5000", "2 to 4096"], ["eval", "tiny", "--text", __file__, "--context", "5000"]),
                    (["nosuch"], ["quantize", "nosuch", Path(folder) / "out"]),
                    ([f"{TINY}: tensor", "already quantised"], ["quantize", TINY, Path(folder) / "out"]),
                    (["--max-context 5000", "2 to 4096"], ["run", "tiny", "x", "--max-context", "5000"]),
                    (["--max-context 1:", "2 to 4096"], ["run", "tiny", "x", "--max-context", "1"]),
            ]:
                with self.subTest(args=args):
                    fails(self, 1, words, *args)
            for text, words in [("[1, 9999]", ["9999", "position 1"]), ("{}", ["JSON list", "object"]),
                                ("[]", ["empty"]), ("[1, \"a\"]", ["element 1"]), ("[1,]", ["byte 4", "']'"]),
                                (str([1] * 4097), ["4097 ids", "4096"])]:
                ids.write_text(text)
                fails(self, 1, [f"lily: --ids {ids}: ", *words], "logits", "tiny", "--ids", ids, "--out", Path(folder) / "out.safetensors")
                self.assertEqual(sorted(p.name for p in Path(folder).iterdir()), ["empty", "ids.json"])
            ids.write_text("[1]")
            fails(self, 1, ["/nonexistent/out"], "logits", "tiny", "--ids", ids, "--out", "/nonexistent/out")

    def test_a_config_without_quantization_is_named(self):
        config = json.loads((TINY / "config.json").read_text())
        del config["quantization"], config["quantization_config"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plain.json"
            file.write_text(json.dumps(config))
            fails(self, 1, [f"lily: --config {file}: quantization:"], "synth", Path(folder) / "out", "--config", file)

    def test_inputs_have_a_limit(self):
        limit = ["/dev/zero: more than 256 MiB"]
        for args in [["template", "tiny", "--messages", "/dev/zero"], ["chat", "tiny", "--tools", "/dev/zero"],
                     ["logits", "tiny", "--ids", "/dev/zero", "--out", "x"], ["eval", "tiny", "--text", "/dev/zero"],
                     ["synth", "out", "--config", "/dev/zero"]]:
            fails(self, 1, limit, *args)
        with open("/dev/zero", "rb") as zeros:
            done = subprocess.run([BIN, "tokenize", "tiny"], stdin=zeros, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, b"lily: standard input: more than 256 MiB, the most that is "
                                                             b"read\n"))

    def test_a_window_of_zero_is_the_whole_one(self):
        flags = ["x", "--temp", "0", "--max-tokens", "3", "--no-think"]
        self.assertEqual(ok(self, "run", "tiny", *flags, "--max-context", "0").out, ok(self, "run", "tiny", *flags).out)

    def test_help_is_aligned_by_what_is_seen(self):
        lines = ok(self, "logits", "--help").out.split("\n")
        (split,) = [line for line in lines if "--split" in line and "feed" in line]
        (ids,) = [line for line in lines if "token ids, a JSON list" in line]
        self.assertEqual(split.index("feed"), ids.index("token ids"))

    def test_a_message_is_one_line_whatever_the_name_holds(self):
        r = lily("run", "no\nsuch\x1b[31m", "x")
        self.assertEqual(r.code, 1)
        self.assertEqual(r.err.count("\n"), 1)
        self.assertNotIn("\x1b", r.err)

    def test_cuda_and_metal_are_refused_by_name_when_they_are_absent(self):
        for backend in ["cuda", "metal"]:
            r = lily("run", "tiny", "x", "--backend", backend, "--max-tokens", "1")
            if r.code != 0:
                self.assertEqual(r.code, 1)
                self.assertIn(backend, r.err)

    def test_a_reader_that_goes_away_is_no_failure_and_no_noise(self):
        for ignored in [False, True]:  # whatever the parent does with SIGPIPE
            child = subprocess.Popen([BIN, "help", "--markdown"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     restore_signals=not ignored)
            child.stdout.close()
            self.assertEqual(child.stderr.read(), b"")
            child.stderr.close()
            self.assertEqual(child.wait(), 0)

    def test_only_files_are_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe, ids = os.path.join(folder, "pipe"), os.path.join(folder, "ids.json")
            os.mkfifo(pipe)
            with open(ids, "w", encoding="utf-8") as file:
                file.write("[1, 2]")
            fails(self, 1, [pipe, "not a regular file"], "logits", "tiny", "--ids", ids, "--out", pipe)
            self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_a_link_is_followed_and_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            target, link, ids = (os.path.join(folder, name) for name in ["target", "link", "ids.json"])
            os.symlink("target", link)
            with open(ids, "w", encoding="utf-8") as file:
                file.write("[1, 2]")
            for _ in range(2):  # where nothing is yet, and over a file
                ok(self, "logits", "tiny", "--ids", ids, "--out", link)
                self.assertTrue(os.path.islink(link))
                self.assertGreater(os.path.getsize(target), 2 * 8192 * 4)
            self.assertEqual(sorted(os.listdir(folder)), ["ids.json", "link", "target"])

    def test_threads_that_cannot_be_made_are_an_error(self):
        with open(BIN, "rb") as program:
            if b"__asan_init" in program.read():
                self.skipTest("a sanitized program needs more address space than the limit leaves")
        done = subprocess.run(["bash", "-c", 'ulimit -v 3000000; exec "$0" run tiny Hello --threads 1000', BIN],
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"--threads 1000: the system gives no more than", done.stderr)

    def test_a_full_disk_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BIN, "tokenize", "tiny", "x"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)

    def test_later_flags_win_and_values_may_look_like_anything(self):
        self.assertEqual(ok(self, "tokenize", "tiny", "--threads", "1", "--threads", "2", "x").out,
                         ok(self, "tokenize", "tiny", "x").out)
        for text in ["[a,b]", "{}", "[]", "", " ", "a=b", "%%", "-", "\"quoted\"", "'", "--temp", "-x", "--",
                     "\\n", "a\nb"]:
            with self.subTest(text=text):
                ids = ok(self, "tokenize", "tiny", "--", text).out
                self.assertEqual(ok(self, "detokenize", "tiny", stdin=ids).out, text)


if __name__ == "__main__":
    main(unittest)
