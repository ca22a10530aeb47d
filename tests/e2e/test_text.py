"""tokenize, detokenize, template."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from lily import TINY, fails, greedy_cases, lily, main, ok


class Text(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_standard_input_is_taken_byte_for_byte(self):
        for text in [b"plain", b"two lines\r\n\n", b"\xff\xfe\x00 not UTF-8 \xc3", "é😀 한글".encode(), b"",
                     b"\n" * 5]:
            ids = ok(self, "tokenize", "tiny", stdin=text).out
            self.assertIsInstance(json.loads(ids), list)
            self.assertEqual(ok(self, "detokenize", "tiny", stdin=ids).out_bytes, text)
        self.assertEqual(ok(self, "tokenize", "tiny", stdin="Hello\n").out, ok(self, "tokenize", "tiny", "Hello\n").out)

    def test_control_tokens_count_only_with_special(self):
        text = "a<|im_end|>b"
        plain = json.loads(ok(self, "tokenize", "tiny", text).out)
        special = json.loads(ok(self, "tokenize", "tiny", "--special", text).out)
        self.assertNotIn(8182, plain)
        self.assertIn(8182, special)
        for ids in [plain, special]:
            self.assertEqual(ok(self, "detokenize", "tiny", json.dumps(ids)).out, text)

    def test_rendered_prompts_have_the_golden_ids(self):
        for case in greedy_cases()[:6]:
            ids = json.loads(ok(self, "tokenize", "tiny", "--special", stdin=case["prompt"]).out)
            self.assertEqual(ids, case["ids"])

    def test_ids_come_as_a_list_with_commas_or_with_spaces(self):
        for form in ["[39, 68]", "39,68", "39 68", " 39 ,68\n", "[39,68]\n"]:
            self.assertEqual(ok(self, "detokenize", "tiny", form).out, ok(self, "detokenize", "tiny", "[39,68]").out)
        self.assertEqual(ok(self, "detokenize", "tiny", "").out, "")

    def test_a_directory_with_tokenizer_files_alone_is_enough(self):
        for name in ["tokenizer.json", "tokenizer_config.json"]:
            shutil.copy(TINY / name, self.folder)
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
        self.assertEqual(ok(self, "tokenize", self.folder, "hi").out, ok(self, "tokenize", "tiny", "hi").out)
        self.assertEqual(ok(self, "template", self.folder, "--messages", "-", stdin=body).out,
                         ok(self, "template", "tiny", "--messages", "-", stdin=body).out)
        r = lily("run", self.folder, "hi")
        self.assertEqual(r.code, 1)
        self.assertIn("config.json", r.err)

    def test_template_renders_exactly_and_gives_the_ids_of_what_it_renders(self):
        body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
        expected = "<|im_start|>system\nBe brief.<|im_end|>\n" \
                   "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
        file = self.folder / "request.json"
        file.write_text(json.dumps(body))
        self.assertEqual(ok(self, "template", "tiny", "--messages", file).out, expected)
        self.assertEqual(ok(self, "template", "tiny", "--messages", file, "--ids").out,
                         ok(self, "tokenize", "tiny", "--special", stdin=expected).out)
        body["chat_template_kwargs"] = {"enable_thinking": False}
        file.write_text(json.dumps(body))
        self.assertTrue(ok(self, "template", "tiny", "--messages", file).out.endswith("<think>\n\n</think>\n\n"))
        body["add_generation_prompt"] = False
        file.write_text(json.dumps(body))
        self.assertTrue(ok(self, "template", "tiny", "--messages", file).out.endswith("Hi<|im_end|>\n"))

    def test_control_tokens_in_content_are_text(self):
        body = json.dumps({"messages": [{"role": "user", "content": "say <|im_end|>"}]})
        ids = json.loads(ok(self, "template", "tiny", "--messages", "-", "--ids", stdin=body).out)
        self.assertEqual(ids.count(8182), 1)  # the template's own alone

    def test_bad_bodies_are_refused_by_field(self):
        for body, word in [("{", "--messages -: not JSON: byte 2 (line 1, column 2): expected a key in quotes or '}'"),
                           ("[]", "--messages"), ("{}", "messages"),
                           ('{"messages":[{"role":"robot","content":"x"}]}', "role"),
                           ('{"messages":[{"role":"assistant","reasoning_content":5}]}',
                            "messages[0].reasoning_content")]:
            fails(self, 1, [word], "template", "tiny", "--messages", "-", stdin=body)
        r = ok(self, "template", "tiny", "--messages", "-",
               stdin='{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"frob":1}}')
        self.assertIn("chat_template_kwargs.frob", r.err)

    def test_fields_without_effect_are_listed(self):
        r = ok(self, "template", "tiny", "--messages", "-",
               stdin='{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"frob":{},"stop":null}')
        self.assertEqual(r.err, "lily: warning: --messages -: ignored, without effect on the prompt: model, stream, frob\n")
        r = ok(self, "template", "tiny", "--messages", "-", stdin='{"messages":[{"role":"user","content":"x"}]}')
        self.assertEqual(r.err, "")


if __name__ == "__main__":
    main(unittest)
