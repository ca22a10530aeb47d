#include <fmt/format.h>

#include "cli/command.h"
#include "ops/techniques.h"

namespace lily::cli {
namespace {

std::string bench_details() {
  std::string text =
      "A prefill row reads N pseudo-random tokens from an empty state, in the engine's own passes. A decode row "
      "computes --steps "
      "tokens one by one after a context of N, which is read once and restored for each repetition. Nothing is "
      "sampled. Lengths "
      "that the model's window or the memory does not hold are named and skipped. Before each row everything runs once "
      "uncounted; before and after each run the read rate and the int8 peak of the machine are measured, and the run's "
      "shares are "
      "taken against those. Rows come in ascending order.\n\n"
      "Every row has a hash of the last logits: the same in every repetition, and the same without a technique whose "
      "results have "
      "the same bits. Its ratio says how many times as fast Lily is with the technique.\n\n"
      "--peer COMMAND is run by the shell once a repetition. In it {n} is the row's N, {phase} is prefill or decode, "
      "{prefill} is "
      "N in prefill and 0 in decode, {context} is N in decode and 0 in prefill, {steps} is --steps in decode and 0 in "
      "prefill. Its "
      "figure is read from what it prints: the last \"avg_ts\": X of JSON, else the last line of a table's t/s column "
      "(both as "
      "llama-bench prints them), else the last number before t/s, tok/s, tokens/s or tokens per second.\n\n"
      "With --json the result is one JSON object: {machine, backend, model, measured_read_gb_s, measured_int8_gop_s, "
      "decode_steps, "
      "peer?, rows: [{phase, n, tok_s_median, tok_s_min, tok_s_max, reps, bytes_per_token, int8_ops_per_token, "
      "bandwidth_share, "
      "compute_share, limit_tok_s, logits_hash, same_hash_in_all_reps, ablated?, speedup?, peer_tok_s_median?, "
      "peer_tok_s_min?, "
      "peer_tok_s_max?, peer_ratio?, stage_shares?}], skipped: [{phase, n, why}]}.\n\n"
      "Techniques that --ablate names, on the CPU:";
  for (const ops::Technique& t : ops::techniques("cpu")) {
    const char* phases = t.prefill && t.decode ? "prefill, decode" : t.prefill ? "prefill" : "decode";
    text += fmt::format("\n- {} ({}): {}", t.name, phases, t.does);
  }
  return text;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"run",
       "answer one prompt",
       "The answer is streamed to standard output as it comes; nothing else goes there. The thinking before it goes to "
       "standard error, dimmed on a terminal. A tool call, should the model write one, is printed as it wrote it.\n\n"
       "With --json the result is one JSON object: {text, reasoning, finish_reason, prompt_tokens, completion_tokens, "
       "cached_tokens, prefill_tok_s, decode_tok_s, sampling}.",
       {"lily run tiny 'What is ls on Linux?'", "lily run tiny --temp 0 --no-think --stats 'Calculate 12 + 30.'",
        "lily run tiny --raw 'Once upon a time' --max-tokens 40", "cat question.txt | lily run qwen3.6-35b-a3b"},
       cmd_run},
      {"chat",
       "a conversation in the terminal",
       "Ctrl-C stops an answer; on an empty line it ends nothing, Ctrl-D or /quit does. Lines that begin with / are "
       "commands: /reset, /save FILE, /load FILE, /stats, /help, /quit. With --tools, each call that the model makes "
       "is "
       "shown and you type its result.\n\nReads lines from a pipe too: then the answers go to standard output and "
       "everything "
       "else to standard error.",
       {"lily chat tiny", "lily chat tiny --system 'Answer briefly.' --temp 0", "lily chat tiny --tools weather.json"},
       cmd_chat},
      {"serve",
       "an OpenAI-compatible HTTP server",
       "Chat completions, completions, models, tokenize, detokenize, apply-template, health, status, metrics, and a chat page at /. "
       "Conversations stay in memory, so that a turn reads only what is new; --cache-bytes is the room for all of them. Listens on "
       "127.0.0.1 unless told otherwise. SIGTERM ends it after the answers that are under way.",
       {"lily serve tiny", "LILY_API_KEY=secret lily serve qwen3.6-35b-a3b --host 0.0.0.0 --mlock",
        "lily serve tiny --port 8080 --parallel 8 --cache-bytes 2g --think off"},
       cmd_serve},
      {"bench",
       "measure prefill and decode speed",
       bench_details(),
       {"lily bench tiny --prefill 256,512 --decode 256", "lily bench tiny --prefill 512 --ablate register-scan --json",
        "lily bench MODEL --plot speed.svg",
        "lily bench MODEL --peer 'llama-bench -m FILE.gguf -t 2 -r 1 -p {prefill} -n {steps} -d {context}'"},
       cmd_bench},
      {"logits",
       "teacher-forced logits of given token ids",
       "Writes float32 logits [n, vocab] and input_ids [n]. Row i is what the model says after ids 0 to i. A pass size "
       "beyond "
       "the back end's longest pass is cut into such passes, which changes no bit.",
       {"lily logits tiny --ids ids.json --out logits.safetensors",
        "lily logits tiny --ids ids.json --out logits.safetensors --split 7,64 --hidden"},
       cmd_logits},
      {"eval",
       "how well the model predicts a text",
       "Mean negative log-likelihood in nats and perplexity over positions 2 to n of the file's tokens, in windows of "
       "--context "
       "tokens without overlap (the first token of each window is given, not predicted).\n\nWith --reference also the "
       "mean "
       "KL divergence from the reference's distribution to this one, how often both have the same most likely token, "
       "and the "
       "ratio of the perplexities. The reference must hold input_ids and logits of exactly this text, made in one "
       "window.",
       {"lily eval tiny --text book.txt", "lily eval tiny --text book.txt --context 1024 --json",
        "lily eval tiny --text book.txt --reference exact.safetensors"},
       cmd_eval},
      {"tokenize",
       "text to token ids",
       "Prints a JSON list. The text is taken byte for byte. Control tokens spelt in it are ordinary text unless "
       "--special is "
       "given. Works on a directory that holds only tokenizer files.",
       {"lily tokenize tiny 'Hello, world'", "lily tokenize tiny --special < prompt.txt"},
       cmd_tokenize},
      {"detokenize",
       "token ids to text",
       "Prints the bytes of the ids and nothing else. Works on a directory that holds only tokenizer files.",
       {"lily detokenize tiny '[39, 68, 75]'", "lily tokenize tiny 'Hello' | lily detokenize tiny"},
       cmd_detokenize},
      {"template",
       "a chat request's prompt",
       "Prints the prompt that the chat template makes of a request body {messages, tools, chat_template_kwargs, "
       "add_generation_prompt}, exactly. Works on a directory that holds only tokenizer files.",
       {"lily template tiny --messages request.json", "lily template tiny --messages request.json --ids"},
       cmd_template},
      {"inspect",
       "what a model consists of and what it needs",
       "Configuration, tensors by group with bits and bytes, the memory plan for a context length, and the decode and "
       "prefill "
       "plans: ops, stages, bytes. --check first looks for values that are not finite in what loading does not read.",
       {"lily inspect tiny", "lily inspect qwen3.6-35b-a3b --context 131072", "lily inspect tiny --json",
        "lily inspect tiny --check"},
       cmd_inspect},
      {"synth",
       "write a synthetic checkpoint",
       "Every tensor comes from a hash of its name, so the bytes are the same wherever it is made. It answers "
       "nonsense, at the "
       "real model's speed.",
       {"lily synth big --preset qwen3.6-35b-a3b", "lily synth small --config config.json"},
       cmd_synth},
      {"quantize",
       "plain (bf16, f16, f32) checkpoint to MLX affine",
       "Streams: never the whole model in memory. The router and the shared expert's gate are kept at 8 bits.",
       {"lily quantize Qwen3.6-35B-A3B qwen-4bit", "lily quantize raw out --bits 6 --group 32"},
       cmd_quantize},
      {"pull",
       "download a checkpoint from a hub",
       "The hub is what the environment variable HF_ENDPOINT names, any that speaks Hugging Face's protocol; HF_TOKEN "
       "is the "
       "token for private models. Only what a model needs is fetched, to ~/.cache/lily/models/NAME (XDG_CACHE_HOME "
       "moves "
       "it), and checked by size and hash. A download that broke off, or was stopped by Ctrl-C, goes on where it was "
       "when the "
       "same command is given again.",
       {"HF_ENDPOINT=https://HUB lily pull OWNER/NAME", "lily pull OWNER/NAME --revision v1 --name mine"},
       cmd_pull},
      {"help",
       "explain a command",
       "The word fusions instead of a command lists the fused ops, what each replaces and where.",
       {"lily help run", "lily help fusions"},
       cmd_help},
  };
  return table;
}

const Command* find_command(std::string_view name) {
  for (const Command& c : commands()) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

}  // namespace lily::cli
