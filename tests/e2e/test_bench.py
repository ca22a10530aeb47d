"""lily bench: what it prints, that figures and hashes hang together, ablations, peers, the plot."""
import json
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

from lily import fails, lily, main, ok

SVG = "{http://www.w3.org/2000/svg}"
FIELDS = {"phase", "n", "tok_s_median", "tok_s_min", "tok_s_max", "reps", "bytes_per_token", "bandwidth_share",
          "compute_share", "logits_hash"}


def rows(report, ablated=None):
    return [r for r in report["rows"] if r.get("ablated") == ablated]


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def bench(self, *flags):
        return json.loads(ok(self, "bench", "tiny", "--json", *flags).out)

    def peer(self, figure="echo \"$1 $2: 4.5 tok/s\""):
        """A program that notes how it was called and prints a figure."""
        script = self.folder / "peer.sh"
        script.write_text(f"echo \"$@\" >> '{self.folder}/calls'\n{figure}\n")
        return f"sh '{script}' {{phase}} {{n}} -p {{prefill}} -n {{steps}} -d {{context}}"

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def test_json_is_as_agreed_and_its_figures_hang_together(self):
        j = self.bench("--prefill", "48,96", "--decode", "48", "--reps", "2", "--steps", "4")
        self.assertGreater(j["measured_read_gb_s"], 0)
        for field in ["machine", "backend", "model"]:
            self.assertTrue(j[field], field)
        self.assertEqual([(r["phase"], r["n"]) for r in j["rows"]], [("prefill", 48), ("decode", 48), ("prefill", 96)])
        for r in j["rows"]:
            self.assertLessEqual(FIELDS, r.keys())
            self.assertTrue(0 < r["tok_s_min"] <= r["tok_s_median"] <= r["tok_s_max"], r)
            self.assertEqual(r["reps"], 2)
            self.assertTrue(r["same_hash_in_all_reps"])
            self.assertRegex(r["logits_hash"], "^[0-9a-f]{16}$")
            # Of the order of what the medians give: the limits swing between the runs.
            share = r["tok_s_median"] * r["bytes_per_token"] / (j["measured_read_gb_s"] * 1e9)
            self.assertTrue(share / 8 < r["bandwidth_share"] < share * 8, (share, r))
            self.assertGreater(r["compute_share"], 0)
        self.assertEqual(len({r["logits_hash"] for r in j["rows"]}), 3)
        # Weights are shared by the tokens of a pass; a decode step reads them for itself alone.
        prefill, decode, longer = j["rows"]
        self.assertGreater(decode["bytes_per_token"], prefill["bytes_per_token"])
        self.assertGreater(prefill["bytes_per_token"], longer["bytes_per_token"])
        # Another process, the same bits; and a context that is reached without a prefill row of its length.
        again = self.bench("--decode", "48", "--reps", "1", "--steps", "4", "--threads", "1")
        self.assertEqual(again["rows"][0]["logits_hash"], decode["logits_hash"])

    def test_stages_share_the_time_of_a_row(self):
        j = self.bench("--prefill", "80", "--decode", "80", "--reps", "1", "--steps", "3", "--stages")
        self.assertEqual(len(j["rows"]), 2)
        for r in j["rows"]:
            shares = r["stage_shares"]
            self.assertAlmostEqual(sum(shares.values()), 1, places=6)
            ops = {op for stage in shares for op in stage.split("+")}
            self.assertLessEqual({"linear", "attention", "gdn_scan", "gdn_gates", "expert_in", "expert_out", "router_topk", "silu_mul"}, ops)
            self.assertTrue(all(share > 0 for share in shares.values()), shares)
        plain = self.bench("--prefill", "80", "--reps", "1")
        self.assertNotIn("stage_shares", plain["rows"][0])
        self.assertEqual(plain["rows"][0]["logits_hash"], j["rows"][0]["logits_hash"])

    def test_each_phase_has_a_precision_of_its_own(self):
        def hashes(*flags):
            rows = self.bench("--prefill", "48", "--decode", "48", "--reps", "1", "--steps", "2", *flags)["rows"]
            return {r["phase"]: r["logits_hash"] for r in rows}
        base = hashes()
        self.assertEqual(hashes("--prefill-activations", "int8", "--decode-activations", "bf16"), base)
        answers = hashes("--decode-activations", "int8")
        self.assertEqual(answers["prefill"], base["prefill"])
        self.assertNotEqual(answers["decode"], base["decode"])
        self.assertNotEqual(hashes("--prefill-activations", "bf16")["prefill"], base["prefill"])

    def test_every_technique_runs_and_those_that_keep_the_bits_do(self):
        j = self.bench("--prefill", "80", "--decode", "16", "--reps", "2", "--steps", "3", "--ablate", "all")
        plain = {r["phase"]: r["logits_hash"] for r in rows(j)}
        self.assertEqual(set(plain), {"prefill", "decode"})
        ablated = [r for r in j["rows"] if "ablated" in r]
        self.assertLessEqual({"fused-expert-in", "fused-expert-out", "fused-linear-add", "register-scan"},
                             {r["ablated"] for r in ablated})
        for r in ablated:
            self.assertGreater(r["speedup"], 0)
            self.assertTrue(r["same_hash_in_all_reps"])
        for name in ["register-scan", "fused-linear-add"]:
            for r in rows(j, name):
                self.assertEqual(r["logits_hash"], plain[r["phase"]], name)
        self.assertEqual([r["phase"] for r in rows(j, "register-scan")], ["prefill"])

    def test_techniques_may_be_named_one_by_one(self):
        j = self.bench("--prefill", "32", "--reps", "1", "--ablate", "register-scan", "--ablate", "fused-expert-in")
        self.assertEqual({r.get("ablated") for r in j["rows"]}, {None, "register-scan", "fused-expert-in"})
        r = lily("bench", "tiny", "--prefill", "32", "--decode", "16", "--reps", "1", "--ablate", "register-scan", "--threads", 1)
        self.assertIn("register-scan: does nothing in decode", r.err)
        fails(self, 1, ["--ablate nothing", "register-scan", "fused-expert-in"], "bench", "tiny", "--prefill", "32",
              "--ablate", "nothing")

    def test_a_peer_takes_turns_and_is_told_the_row(self):
        j = self.bench("--prefill", "32", "--decode", "32", "--reps", "3", "--steps", "2", "--peer", self.peer())
        self.assertEqual(self.calls(), ["prefill 32 -p 32 -n 0 -d 0"] * 3 + ["decode 32 -p 0 -n 2 -d 32"] * 3)
        for r in j["rows"]:
            self.assertEqual(r["peer_tok_s_median"], 4.5)
            self.assertTrue(r["tok_s_min"] / 4.5 <= r["peer_ratio"] <= r["tok_s_max"] / 4.5)
        self.assertIn("{n}", j["peer"])

    def test_a_peer_that_cannot_be_read_is_an_error(self):
        for figure, words in [("echo fast", ["tokens a second", "fast"]), ("echo no model; exit 4", ["status 4", "no model"])]:
            r = lily("bench", "tiny", "--json", "--prefill", "16", "--reps", "1", "--peer", self.peer(figure))
            self.assertEqual((r.code, r.out), (1, ""))
            for word in words:
                self.assertIn(word, r.err.strip().split("\n")[-1])
        r = lily("bench", "tiny", "--json", "--prefill", "16", "--peer", "echo 3 tok/s")
        self.assertEqual((r.code, r.out), (2, ""))
        self.assertIn("{n}", r.err)

    def test_lengths_that_do_not_fit_are_named(self):
        j = self.bench("--prefill", "24,4097", "--decode", "4090", "--steps", "7", "--reps", "1")
        self.assertEqual([(r["phase"], r["n"]) for r in j["rows"]], [("prefill", 24)])
        self.assertEqual([(s["phase"], s["n"]) for s in j["skipped"]], [("decode", 4090), ("prefill", 4097)])
        for s in j["skipped"]:
            self.assertIn("4096", s["why"])
        text = ok(self, "bench", "tiny", "--prefill", "24,4097", "--reps", "1").out
        self.assertRegex(text, r"prefill +4097 +skipped: .*4096")

    def test_the_table_has_a_line_a_row_and_says_what_it_counts(self):
        r = ok(self, "bench", "tiny", "--prefill", "32", "--decode", "32", "--reps", "1", "--steps", "2", "--ablate",
               "fused-linear-add", "--peer", self.peer())
        for line in [r"prefill +32 +[\d.]+ \([\d.]+ … [\d.]+\) .* % .* [0-9a-f]{16}\n", r"prefill .* without fused-linear-add\n",
                     r"prefill .*4\.50 \(4\.50 … 4\.50\) .* peer\n", r"decode +32 +[\d.]+ ", r"limits +[\d.]+ GB/s read",
                     r"MB/token what must move"]:
            self.assertRegex(r.out, line)
        self.assertIn("2 rows, about", r.err)

    def test_the_plot_is_well_formed_whatever_the_peer_is_called(self):
        plot = self.folder / "plot.svg"
        self.bench("--prefill", "16,32,64", "--decode", "16", "--steps", "2", "--reps", "2", "--plot", plot, "--peer",
                   self.peer() + " '<&>\"'")
        root = xml.etree.ElementTree.fromstring(plot.read_text())
        self.assertEqual(root.tag, SVG + "svg")
        circles = [c.get("class") for c in root.iter(SVG + "circle")]
        self.assertEqual(circles.count("dot lily"), 4)
        self.assertEqual(circles.count("dot peer"), 4)
        self.assertEqual(circles.count("dot limit"), 4)
        text = "".join(root.itertext())
        for word in ["Prefill", "Decode", "Lily", "peer", "limit", "tokens"]:
            self.assertIn(word, text)
        self.assertNotIn("http", plot.read_text().replace("http://www.w3.org/2000/svg", ""))

    def test_a_plot_that_cannot_be_written_is_refused_before_anything_runs(self):
        fails(self, 1, ["--plot", "nosuch"], "bench", "tiny", "--plot", self.folder / "nosuch" / "plot.svg")
        fails(self, 1, ["/dev/null"], "bench", "tiny", "--plot", "/dev/null")

    def test_wrong_usage(self):
        for words, args in [(["--prefill", "0"], ["--prefill", "0"]), (["--decode", "x"], ["--decode", "1,x"]),
                            (["--reps", "0"], ["--reps", "0"]), (["--steps"], ["--steps", "0"]), (["MODEL"], [])]:
            model = ["tiny"] if args else []
            fails(self, 2, words, "bench", *model, *args)

    def test_the_reference_back_end_has_rows_without_shares(self):
        j = self.bench("--prefill", "4", "--reps", "1", "--backend", "reference")
        self.assertIsNone(j["measured_read_gb_s"])
        self.assertIsNone(j["rows"][0]["bandwidth_share"])
        self.assertGreater(j["rows"][0]["tok_s_median"], 0)
        fails(self, 1, ["--ablate register-scan", "reference"], "bench", "tiny", "--prefill", "4", "--ablate", "register-scan",
              "--backend", "reference")


if __name__ == "__main__":
    main(unittest)
