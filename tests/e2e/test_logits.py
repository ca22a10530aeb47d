"""lily logits, eval, inspect, synth."""
import json
import math
import re
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

from lily import GOLDEN, ROOT, TINY, fails, lily, main, ok, read_safetensors

EXACT = ["--exact"]  # float32 all through: what the golden logits are


def max_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


class Logits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.golden = read_safetensors(GOLDEN / "golden.safetensors")
        cls.all_ids = list(cls.golden["input_ids"][1])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ids = self.folder / "ids.json"
        self.ids.write_text(json.dumps(self.all_ids[:40]))

    def logits(self, *flags):
        out = self.folder / "out.safetensors"
        ok(self, "logits", "tiny", "--ids", self.ids, "--out", out, *flags)
        return read_safetensors(out)

    def test_logits_are_the_golden_ones(self):
        t = self.logits(*EXACT)
        self.assertEqual(t["logits"][0], [40, 8192])
        self.assertEqual(list(t["input_ids"][1]), self.all_ids[:40])
        golden = self.golden["logits"][1][:40 * 8192]
        # Two float32 computations in different order. The bound is 2000 roundings (2^-24) of the largest logit's size
        # (20): over a hundred times below the difference that a wrong token makes (next line).
        self.assertLess(max_difference(t["logits"][1], golden), 2000 * 2**-24 * 20)
        self.assertGreater(max_difference(t["logits"][1][8192:], golden), 0.5)

    def test_splits_change_no_bit_and_decode_agrees(self):
        whole = self.logits(*EXACT)["logits"][1]
        self.assertEqual(whole, self.logits(*EXACT, "--split", "7,16")["logits"][1])
        self.assertLess(max_difference(whole, self.logits(*EXACT, "--split", "1")["logits"][1]), 2000 * 2**-24 * 20)

    def test_hidden_rows_of_each_layer(self):
        self.ids.write_text(json.dumps(self.all_ids[:12]))
        t = self.logits(*EXACT, "--hidden")
        self.assertEqual(t["hidden_after_layer"][0], [12, 12, 384])
        parts = self.logits(*EXACT, "--hidden", "--split", "5")
        self.assertEqual(t["hidden_after_layer"][1], parts["hidden_after_layer"][1])
        values = t["hidden_after_layer"][1]
        self.assertTrue(all(any(values[l * 12 * 384:(l + 1) * 12 * 384]) for l in range(12)))
        self.assertNotIn("hidden_after_layer", self.logits(*EXACT))

    def test_nothing_is_left_behind_by_a_failure(self):
        self.ids.write_text("[1, 8192]")
        fails(self, 1, ["8192"], "logits", "tiny", "--ids", self.ids, "--out", self.folder / "out.safetensors")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["ids.json"])


class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        golden = read_safetensors(GOLDEN / "golden.safetensors")
        cls.folder_owner = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.folder_owner.name)
        cls.text = cls.folder / "text.txt"
        cls.text.write_bytes(lily("detokenize", "tiny", json.dumps(list(golden["input_ids"][1]))).out_bytes)
        cls.nll = golden["nll"][1]

    @classmethod
    def tearDownClass(cls):
        cls.folder_owner.cleanup()

    def test_negative_log_likelihood_is_the_golden_one(self):
        j = json.loads(ok(self, "eval", "tiny", "--text", self.text, "--json", *EXACT).out)
        self.assertEqual((j["tokens"], j["predicted"]), (192, 191))
        mean = sum(self.nll) / len(self.nll)
        self.assertAlmostEqual(j["nll"], mean, delta=1e-4)
        self.assertAlmostEqual(j["perplexity"], math.exp(mean), delta=1e-2)
        self.assertIn("perplexity", ok(self, "eval", "tiny", "--text", self.text, *EXACT, "--context", "192").out)

    def test_the_reference_is_compared_position_by_position(self):
        j = json.loads(ok(self, "eval", "tiny", "--text", self.text, "--json", *EXACT, "--reference",
                          GOLDEN / "golden.safetensors").out)
        self.assertLess(j["mean_kl"], 1e-6)
        self.assertGreaterEqual(j["mean_kl"], -1e-9)
        self.assertGreater(j["top1_agreement"], 0.99)
        self.assertAlmostEqual(j["perplexity_ratio"], 1, delta=1e-4)
        self.assertAlmostEqual(j["reference_nll"], sum(self.nll) / len(self.nll), delta=1e-4)

    def test_windows_do_not_overlap_and_predict_all_but_their_first(self):
        j = json.loads(ok(self, "eval", "tiny", "--text", self.text, "--json", *EXACT, "--context", "50").out)
        self.assertEqual((j["tokens"], j["predicted"], j["context"]), (192, 188, 50))
        whole = json.loads(ok(self, "eval", "tiny", "--text", self.text, "--json", *EXACT).out)
        self.assertGreater(j["nll"], whole["nll"])  # less is known at each position

    def damaged_reference(self, position, value):
        """The golden logits with all tokens of a position but the text's next at `value`."""
        data = bytearray((GOLDEN / "golden.safetensors").read_bytes())
        header_end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:header_end])
        ids = read_safetensors(GOLDEN / "golden.safetensors")["input_ids"][1]
        begin = header_end + header["logits"]["data_offsets"][0] + position * 8192 * 4
        kept = begin + 4 * ids[position + 1]
        before = data[kept:kept + 4]
        data[begin:begin + 8192 * 4] = struct.pack("<f", value) * 8192
        data[kept:kept + 4] = before
        file = self.folder / "damaged.safetensors"
        file.write_bytes(data)
        return file

    def test_a_reference_that_is_not_finite_is_refused(self):
        for value, word in [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]:
            r = lily("eval", "tiny", "--text", self.text, "--reference", self.damaged_reference(7, value))
            self.assertEqual((r.code, r.out), (1, ""))
            self.assertRegex(r.err, f"lily: --reference .*damaged.safetensors: logits: .* found -?{word} at position 7")

    def test_a_perplexity_beyond_all_numbers_is_inf_and_told(self):
        args = ["eval", "tiny", "--text", self.text, "--reference", self.damaged_reference(7, 1e30)]
        r = ok(self, *args, "--json")
        self.assertIsNone(json.loads(r.out)["reference_perplexity"])
        self.assertIn("warning: reference_perplexity is beyond the largest number", r.err)
        self.assertRegex(ok(self, *args).out, r"reference's perplexity +inf\n")

    def test_a_reference_of_another_text_is_refused(self):
        other = self.folder / "other.txt"
        other.write_bytes(b"X" + self.text.read_bytes()[1:])
        golden = GOLDEN / "golden.safetensors"
        fails(self, 1, ["--reference"], "eval", "tiny", "--text", other, "--reference", golden, "--context", "4096")
        fails(self, 1, ["--reference", "100"], "eval", "tiny", "--text", self.text, "--reference", golden,
              "--context", "100")
        fails(self, 1, ["logits"], "eval", "tiny", "--text", self.text, "--reference",
              ROOT / "models" / "tiny" / "model.safetensors")
        short = self.folder / "short.txt"
        short.write_text("")
        fails(self, 1, ["--text", "0 tokens"], "eval", "tiny", "--text", short)


class Inspect(unittest.TestCase):
    def test_tables_and_json_agree(self):
        text = ok(self, "inspect", "tiny", "--context", "1000").out
        j = json.loads(ok(self, "inspect", "tiny", "--context", "1000", "--json").out)
        self.assertEqual(j["config"]["layers"], 12)
        self.assertEqual(j["memory"]["context"], 1000)
        self.assertEqual(j["memory"]["kv"], 4 * 256 * j["memory"]["kv_per_token"])  # whole blocks
        self.assertEqual(j["memory"]["weights"], sum(g["bytes"] for g in j["tensors"]))
        for phase in ["decode", "prefill"]:
            ops = j[f"{phase}_plan"]["ops"]
            self.assertGreater(len(ops), 100)
            self.assertIn(f"{phase} plan: {len(ops)} ops in {j[f'{phase}_plan']['stages']} stages", text)
        for group in j["tensors"]:
            self.assertRegex(text, rf"{group['role']} +{re.escape(str(group['shape']))} ")
        experts = {tuple(g["shape"]) for g in j["tensors"] if g["part"] == "experts"}
        self.assertEqual(experts, {(16, 128, 384), (16, 384, 128)})
        self.assertEqual(j["config"]["rms_eps"], 1e-6)
        self.assertRegex(text, r"rms_eps +1e-06\n")
        self.assertGreater(len(ok(self, "inspect", "tiny", "--all-layers").out), 2 * len(text))

    def test_check_finds_a_value_that_is_not_finite(self):
        ok(self, "inspect", "tiny", "--check")
        with tempfile.TemporaryDirectory() as folder:
            for name in ["config.json", "model.safetensors"]:
                shutil.copy(TINY / name, folder)
            file = Path(folder) / "model.safetensors"
            data = bytearray(file.read_bytes())
            header_end = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:header_end])
            (name,) = [n for n in header if n.endswith("layers.4.mlp.switch_mlp.up_proj.scales")]
            self.assertEqual(header[name]["dtype"], "BF16")
            begin = header_end + header[name]["data_offsets"][0]
            data[begin:begin + 2] = b"\xc0\x7f"
            file.write_bytes(data)
            ok(self, "inspect", folder)
            r = lily("inspect", folder, "--check")
            self.assertEqual((r.code, r.out), (1, ""))
            self.assertIn("layers.4.mlp.switch_mlp.up_proj.scales", r.err)
            self.assertIn("expert 0, row 0, column 0", r.err)

    def test_a_synthetic_model_can_be_made_inspected_and_run(self):
        config = json.loads((ROOT / "models" / "tiny" / "config.json").read_text())
        config["text_config"]["num_hidden_layers"] = 4
        config["text_config"].pop("layer_types", None)
        with tempfile.TemporaryDirectory() as folder:
            file, out = Path(folder) / "config.json", Path(folder) / "synthetic"
            file.write_text(json.dumps(config))
            ok(self, "synth", out, "--config", file)
            self.assertEqual(json.loads(ok(self, "inspect", out, "--json").out)["config"]["layers"], 4)
            self.assertTrue(ok(self, "run", out, "--raw", "--max-tokens", "3", "--temp", "0", "abc").out)
            before = (out / "model.safetensors.index.json").exists()
            again = lily("synth", out, "--config", file)
            self.assertEqual(again.code, 0, again.err)  # complete shards are kept
            self.assertEqual(before, (out / "model.safetensors.index.json").exists())


if __name__ == "__main__":
    main(unittest)
