"""What the program does to files: its own results appear whole or not at all, and nothing of anybody else is touched."""
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from lily import BIN, TINY, fails, lily, main, ok

DEEP = "[" * 200_000 + "]" * 200_000


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ids = self.folder / "ids.json"
        self.ids.write_text("[1, 2, 3]")

    def model(self):
        copy = self.folder / "model"
        shutil.copytree(TINY, copy)
        return copy

    def small_config(self, **changes):
        config = json.loads((TINY / "config.json").read_text())
        config["text_config"] |= {"num_hidden_layers": 4} | changes
        config["text_config"].pop("layer_types", None)
        file = self.folder / "small.json"
        file.write_text(json.dumps(config))
        return file

    def names(self):
        return sorted(p.name for p in self.folder.iterdir())

    def start_long_logits(self, out, **popen):
        """Logits that take a second or more; returns when the unfinished file is there, the process and that file."""
        self.ids.write_text(json.dumps([i * 7 % 8000 for i in range(400)]))
        run = subprocess.Popen([BIN, "logits", "tiny", "--ids", self.ids, "--out", out, "--backend", "reference"],
                               **popen)
        part = Path(f"{out}.{run.pid}.part")
        for _ in range(500):
            if part.exists():
                return run, part
            time.sleep(0.02)
        self.fail(f"no {part}")

    def test_closed_descriptors_are_not_taken_for_results(self):
        if not Path("/proc/self/fd").exists():
            self.skipTest("no /proc")
        run, part = self.start_long_logits(self.folder / "out", preexec_fn=lambda: [os.close(fd) for fd in range(3)])
        self.assertEqual({os.readlink(f"/proc/{run.pid}/fd/{fd}") for fd in range(3)}, {"/dev/null"})
        run.kill()
        run.wait()
        done = subprocess.run(["bash", "-c", 'exec "$0" tokenize tiny x >&-', BIN], capture_output=True, check=False)
        self.assertEqual(done.returncode, 1)  # a result that goes nowhere is no success
        self.assertIn(b"standard output", done.stderr)

    def test_logits_are_not_written_over_what_is_read(self):
        model = self.model()
        link = self.folder / "link"
        link.symlink_to(model / "model.safetensors")
        before = (model / "model.safetensors").read_bytes()
        for out in [model / "model.safetensors", link, model / "config.json", self.ids]:
            fails(self, 1, [f"--out {out}", "is read"], "logits", model, "--ids", self.ids, "--out", out)
        self.assertEqual((model / "model.safetensors").read_bytes(), before)
        self.assertEqual(self.ids.read_text(), "[1, 2, 3]")

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        run, part = self.start_long_logits(self.folder / "out", stderr=subprocess.DEVNULL)
        self.ids.write_text("[1, 2, 3]")
        ok(self, "logits", "tiny", "--ids", self.ids, "--out", self.folder / "out")
        self.assertTrue(part.exists())  # of a run that is still at work
        run.kill()
        run.wait()
        ok(self, "logits", "tiny", "--ids", self.ids, "--out", self.folder / "out")
        self.assertEqual(self.names(), ["ids.json", "out"])

    def test_a_limit_of_file_size_is_an_error(self):
        config = self.small_config()
        for args in [["logits", "tiny", "--ids", self.ids, "--out", self.folder / "out"],
                     ["synth", self.folder / "synth", "--config", config]]:
            limit = (60_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
            done = subprocess.run([BIN, *map(str, args)], capture_output=True, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(b"cannot be written: File too large", done.stderr)
        self.assertEqual([p for p in self.folder.rglob("*.part")], [])

    def test_pipes_and_dangling_links_in_a_model_are_named(self):
        for name in ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json",
                     "tokenizer_config.json", "chat_template.jinja", "model.safetensors.index.json"]:
            for make, words in [(os.mkfifo, ["expected a regular file", "a pipe"]),
                                (lambda p: p.symlink_to("../blobs/gone"), ["../blobs/gone", "not there"]),
                                (lambda p: p.symlink_to(p.name), ["in a circle"])]:
                model = self.model()
                (model / name).unlink(missing_ok=True)
                make(model / name)
                r = lily("run", model, "hi", "--max-tokens", "1", timeout=20)
                self.assertEqual((r.code, r.out), (1, ""), name)
                for word in [name, *words]:
                    self.assertIn(word, r.err)
                shutil.rmtree(model)

    def test_deeply_nested_json_is_an_error_wherever_it_is_read(self):
        deep = self.folder / "deep.json"
        deep.write_text(DEEP)
        fails(self, 1, ["deeper than 64"], "detokenize", "tiny", stdin=DEEP)
        fails(self, 1, ["--ids", "deeper than 64"], "logits", "tiny", "--ids", deep, "--out", self.folder / "out")
        deep.write_text('{"model_type": ' + DEEP + "}")
        fails(self, 1, ["--config", "deeper than 64"], "synth", self.folder / "out", "--config", deep)
        fails(self, 1, ["--messages", "deeper than 64"], "template", "tiny", "--messages", deep)
        model = self.model()
        for name in ["config.json", "generation_config.json", "tokenizer_config.json"]:
            before = (model / name).read_text()
            (model / name).write_text('{"eos_token": ' + DEEP + "}")
            fails(self, 1, [name, "deeper than 64"], "run", model, "hi")
            (model / name).write_text(before)
        (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": ' + DEEP + "}}")
        r = ok(self, "run", model, "hi", "--max-tokens", "1")
        self.assertIn("deeper than 64; the index is ignored", r.err)

    def test_an_end_token_beyond_the_vocabulary_is_told_and_ignored(self):
        model = self.model()
        (model / "generation_config.json").write_text('{"eos_token_id": [8182, 99999]}')
        r = ok(self, "run", model, "hi", "--max-tokens", "1", "--no-think")
        self.assertIn("generation_config.json: eos_token_id 99999 is ignored: the model's ids end at 8191", r.err)
        self.assertNotIn("8182", r.err)

    def test_threads_that_cannot_be_made_end_nothing(self):
        with open(BIN, "rb") as program:
            if b"__asan_init" in program.read():
                self.skipTest("a sanitized program needs more address space than the limit leaves")
        config, plain, limited = self.small_config(), self.folder / "plain", self.folder / "limited"
        ok(self, "synth", plain, "--config", config)
        done = subprocess.run(["bash", "-c", f'ulimit -v 600000; exec "$0" synth {limited} --config {config} '
                               "--threads 1024", BIN], capture_output=True, check=False)
        # With the threads that there were; or, where these took all memory, one line.
        if done.returncode == 0:
            self.assertEqual(*[(p / "model.safetensors").read_bytes() for p in [plain, limited]])
        else:
            self.assertEqual((done.returncode, done.stderr), (1, b"lily: out of memory\n"))

    def test_ctrl_c_stops_synth_and_the_same_command_goes_on(self):
        out = self.folder / "big"
        config = self.small_config(num_experts=256, hidden_size=2048, moe_intermediate_size=512)
        run = subprocess.Popen([BIN, "synth", out, "--config", config, "--threads", "1"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        for _ in range(500):
            if list(out.glob("*.part")):
                break
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        text, err = run.communicate(timeout=60)
        self.assertEqual((run.returncode, text), (-signal.SIGINT, ""), err)
        self.assertIn("run the same command again to go on", err)
        self.assertEqual(list(out.glob("*.part")), [])
        fails(self, 1, ["an interrupted download or synth? run it again"], "inspect", out)

    def test_synth_leaves_a_directory_of_somebody_else_alone(self):
        model = self.model()
        before = {p.name: p.read_bytes() for p in model.iterdir()}
        fails(self, 1, [str(model), "choose another"], "synth", model, "--config", model / "config.json")
        self.assertEqual({p.name: p.read_bytes() for p in model.iterdir()}, before)

    def test_a_place_that_cannot_be_written_is_named_as_it_was_given(self):
        r = ok(self, "chat", "tiny", stdin="/save /nonexistent/chat.json\n")
        self.assertIn("lily: /nonexistent/chat.json: cannot be written: No such file or directory\n", r.err)


if __name__ == "__main__":
    main(unittest)
