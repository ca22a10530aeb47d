"""lily run."""
import json
import os
import signal
import subprocess
import time
import unittest

from lily import BIN, TINY, fails, greedy_cases, lily, main, ok


class Run(unittest.TestCase):
    def test_greedy_answers_are_the_golden_ones(self):
        # --raw: the case's prompt is a rendered one. Cases whose margin is small may part by rounding; two are long.
        done = 0
        for case in greedy_cases():
            if case["min_margin"] < 1 or len(case["ids"]) > 300 or not case["ended"]:
                continue
            r = ok(self, "run", "tiny", "--raw", "--temp", "0", stdin=case["prompt"])
            expected = case["greedy_text"].removesuffix("<|im_end|>")
            self.assertEqual(r.out, expected + "\n", case["skill"])
            done += 1
        self.assertGreater(done, 8)

    def test_the_answer_goes_to_stdout_and_the_thinking_to_stderr(self):
        r = ok(self, "run", "tiny", "--temp", "0", "What is the last letter of terrace?")
        self.assertEqual(r.out, "The last letter of terrace is e.\n")
        self.assertEqual(r.err.strip(), "t-e-r-r-a-c-e.")
        r = ok(self, "run", "tiny", "--temp", "0", "--no-think", "Name an antonym of heavy.")
        self.assertEqual((r.out, r.err), ("The opposite of heavy is light.\n", ""))

    def test_the_prompt_may_come_from_standard_input(self):
        args = ["run", "tiny", "--temp", "0", "--no-think", "--max-tokens", "4"]
        self.assertEqual(ok(self, *args, "Name an antonym of heavy.").out,
                         ok(self, *args, stdin="Name an antonym of heavy.\n").out)

    def test_json_says_what_came_out_and_which_values_held(self):
        j = json.loads(ok(self, "run", "tiny", "--json", "--temp", "0", "What is the last letter of terrace?").out)
        self.assertEqual(j["text"], "The last letter of terrace is e.")
        self.assertEqual(j["reasoning"], "t-e-r-r-a-c-e.")
        self.assertEqual(j["finish_reason"], "stop")
        self.assertEqual((j["prompt_tokens"], j["completion_tokens"]), (20, 21))
        self.assertEqual(j["sampling"]["temperature"], 0)
        self.assertEqual(j["sampling"]["top_k"], 20)  # generation_config.json
        j = json.loads(ok(self, "run", "tiny", "--json", "--max-tokens", "3", "--top-k", "0", "--top-p", "1", "Hi").out)
        self.assertEqual(j["finish_reason"], "length")
        self.assertEqual(j["completion_tokens"], 3)
        self.assertEqual(j["text"], "")  # cut inside the thinking
        self.assertEqual((j["sampling"]["top_k"], j["sampling"]["top_p"]), (0, 1))
        self.assertEqual(j["sampling"]["temperature"], 0.3)

    def test_same_seed_same_text_no_seed_another(self):
        def text(*flags):
            return ok(self, "run", "tiny", "--raw", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--max-tokens",
                      "12", *flags, "The").out
        self.assertEqual(text("--seed", "5"), text("--seed", "5"))
        self.assertNotEqual(text("--seed", "5"), text("--seed", "6"))
        self.assertNotEqual(text(), text())

    def test_an_answer_that_was_cut_says_so(self):
        r = ok(self, "run", "tiny", "--temp", "0", "--max-tokens", "3", "What is the last letter of terrace?")
        self.assertEqual(r.out.strip(), "")
        self.assertIn("cut after 3 tokens, before it began", r.err)

    def test_stats_go_to_stderr(self):
        r = ok(self, "run", "tiny", "--no-think", "--temp", "0", "--stats", "Name an antonym of heavy.")
        self.assertRegex(r.err, r"prefill \d+ tokens .* tokens/s; decode 7 tokens in .* tokens/s")
        self.assertEqual(r.out, "The opposite of heavy is light.\n")

    def test_a_prompt_that_fills_the_window_is_refused_with_both_numbers(self):
        text = "word " * 50
        ids = json.loads(ok(self, "tokenize", "tiny", text).out)
        fails(self, 1, [f"{len(ids)} tokens", "of 20"], "run", "tiny", "--raw", "--max-context", "20", text)
        fails(self, 1, ["empty"], "run", "tiny", "--raw", "")
        fails(self, 1, ["empty"], "run", "tiny", " \n")
        n = len(ids)
        fails(self, 1, [f"{n} tokens", f"of {n}"], "run", "tiny", "--raw", "--max-context", n, text)
        j = json.loads(ok(self, "run", "tiny", "--raw", "--json", "--temp", "0", "--max-context", n + 1, text).out)
        self.assertEqual((j["completion_tokens"], j["finish_reason"]), (1, "length"))

    def test_a_system_message_reaches_the_prompt(self):
        def tokens(*flags):
            return json.loads(ok(self, "run", "tiny", "--json", "--max-tokens", "1", *flags, "Hi").out)["prompt_tokens"]
        self.assertGreater(tokens("--system", "Be brief."), tokens())

    def test_ctrl_c_ends_it_as_a_shell_expects(self):
        child = subprocess.Popen([BIN, "run", TINY, "--raw", "--temp", "0", "--max-tokens", "3000", "In the beginning"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(os.read(child.stdout.fileno(), 1))
        child.send_signal(signal.SIGINT)
        begin = time.monotonic()
        child.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(child.returncode, -signal.SIGINT)

    def test_a_reader_that_goes_away_ends_the_answer(self):
        child = subprocess.Popen([BIN, "run", TINY, "--raw", "--temp", "0", "--max-tokens", "3000", "In the beginning"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(os.read(child.stdout.fileno(), 1))
        child.stdout.close()
        self.assertEqual(child.wait(timeout=60), 0)
        self.assertEqual(child.stderr.read(), b"")
        child.stderr.close()


if __name__ == "__main__":
    main(unittest)
