#include "cli/answer.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "cli/output.h"
#include "plan/cost.h"
#include "text/output_parser.h"
#include "text/stream_decoder.h"

namespace lily::cli {
namespace {

/// Where the two kinds of text go. Keeps them apart by an empty line when both are on one screen.
class Screen {
 public:
  explicit Screen(bool show) : show_(show), dim_(stderr_is_terminal()) {}
  ~Screen() { end_reasoning(); }

  void reasoning(const std::string& text) {
    if (!show_ || text.empty()) return;
    if (!in_reasoning_ && dim_) std::fputs("\x1b[2m", stderr);
    in_reasoning_ = true;
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }
  void content(const std::string& text) {
    if (!show_ || text.empty()) return;
    end_reasoning();
    put(text);
    line_open_ = text.back() != '\n';
  }
  /// The end of the answer: it ends in one newline, whoever wrote it.
  void finish() {
    end_reasoning();
    if (show_ && line_open_) put("\n");
  }

 private:
  void end_reasoning() {
    if (!in_reasoning_) return;
    in_reasoning_ = false;
    std::fputs(dim_ ? "\x1b[0m\n\n" : "\n\n", stderr);
    std::fflush(stderr);
  }

  bool show_, dim_;
  bool in_reasoning_ = false;
  bool line_open_ = false;
};

/// A progress line for prompts that take a while to read, gone when the first token comes.
class PromptProgress {
 public:
  explicit PromptProgress(bool show) : show_(show && stderr_is_terminal()) {}
  void told(std::int64_t done, std::int64_t total) {
    if (!show_ || Clock::now() - begin_ < std::chrono::milliseconds(500)) return;
    if (done < total && done > 0) {
      std::fprintf(stderr, "\r\x1b[0;2mreading the prompt: %lld of %lld tokens\x1b[0m\x1b[K",
                   static_cast<long long>(done), static_cast<long long>(total));
      drawn_ = true;
    } else {
      clear();
    }
    std::fflush(stderr);
  }
  void clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
  }
  ~PromptProgress() { clear(); }

 private:
  bool show_, drawn_ = false;
  Clock::time_point begin_ = Clock::now();
};

/// Puts the model's text, token by token, into an Answer and onto the screen.
class Receiver {
 public:
  Receiver(Answer& answer, bool thinking, const Tokenizer& tokenizer, const AnswerOptions& options)
      : answer_(answer),
        screen_(options.show),
        decoder_(tokenizer),
        parser_(thinking && !options.raw, options.tools ? *options.tools : ToolSchemas(),
                {.enabled = options.tools != nullptr}),
        raw_(options.raw) {}

  void take(std::int32_t id) {
    const std::string text = decoder_.push(id);
    raw_ ? content(text) : take(parser_.push(text));
  }
  void finish(TextEnd end) {
    const std::string text = decoder_.finish();
    if (raw_) {
      content(text);
    } else {
      take(parser_.push(text));
      take(parser_.finish(end));
      answer_.calls.resize(std::size_t(parser_.completed_calls()));
    }
    screen_.finish();
  }

 private:
  void content(const std::string& text) {
    answer_.content += text;
    screen_.content(text);
  }
  void take(const OutputParser::Delta& delta) {
    answer_.reasoning += delta.reasoning;
    screen_.reasoning(delta.reasoning);
    for (const ToolEvent& e : delta.events) {
      switch (e.kind) {
        case ToolEvent::Kind::text:
          content(e.text);
          break;
        case ToolEvent::Kind::call_begin:
          answer_.calls.push_back({e.id, e.text, ""});
          break;
        case ToolEvent::Kind::arguments:
          answer_.calls.back().arguments += e.text;
          break;
        case ToolEvent::Kind::call_end:
          break;
      }
    }
  }

  Answer& answer_;
  Screen screen_;
  StreamDecoder decoder_;
  OutputParser parser_;
  bool raw_;
};

}  // namespace

const char* Answer::finish_reason() const {
  if (!calls.empty()) return "tool_calls";
  switch (generated.finish) {
    case Finish::end_token:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::stopped:
      return "interrupted";
  }
  return "?";
}

Answer answer(Session& session, const Prompt& prompt, Sampler& sampler, const Tokenizer& tokenizer,
              const AnswerOptions& options, const Interrupt& interrupt) {
  Answer a;
  PromptProgress progress(options.show);
  Receiver receiver(a, prompt.thinking, tokenizer, options);
  GenerateOptions generation;
  generation.max_tokens = options.max_tokens;
  generation.end_ids = tokenizer.end_tokens();
  generation.sync.snapshot_at = prompt.snapshot_at;
  generation.sync.progress = [&](std::int64_t done, std::int64_t total) {
    progress.told(done, total);
    return !interrupt.wanted();
  };
  generation.on_token = [&](std::int32_t id) {
    receiver.take(id);
    return !interrupt.wanted();
  };
  a.generated = generate(session, prompt.ids, sampler, generation);
  receiver.finish(a.generated.finish == Finish::end_token ? TextEnd::complete : TextEnd::truncated);
  return a;
}

std::string stats_line(const Generated& g) {
  std::string line = fmt::format("prefill {} tokens", g.prompt.computed);
  if (g.prompt.reused) line += fmt::format(" ({} more were known)", g.prompt.reused);
  line += fmt::format(" in {:.3f} s, {:.1f} tokens/s; decode {} tokens in {:.3f} s, {:.1f} tokens/s", g.prefill_seconds,
                      g.prefill_rate(), g.decode_steps, g.decode_seconds, g.decode_rate());
  return line;
}

std::string limits_line(const Generated& g, Engine& engine, const Weights& weights) {
  Backend& backend = engine.backend();
  const MachineLimits limits = backend.measure_limits();
  if (limits.read_bytes_per_s <= 0) return {};
  const DType kv_type = backend.state_layout().kv_type;
  const std::int64_t prompt = g.prompt.reused + g.prompt.computed;
  // Bytes of a step grow with the context: those of the middle of the answer stand for all.
  const plan::Cost step = plan::cost(backend.plan(plan::Phase::decode), weights,
                                     {.rows = 1, .position = prompt + g.decode_steps / 2, .kv_type = kv_type});
  const double moved = step.bytes() * g.decode_rate();
  const plan::Cost read = plan::cost(backend.plan(plan::Phase::prefill), weights,
                                     {.rows = int(g.prompt.computed), .position = g.prompt.reused, .kv_type = kv_type});
  std::string line =
      fmt::format("decode moves {:.1f} MB a token: {:.1f} GB/s, {:.0f} % of the {:.1f} GB/s that reading alone reaches",
                  step.bytes() / 1e6, moved / 1e9, 100 * moved / limits.read_bytes_per_s, limits.read_bytes_per_s / 1e9);
  if (read.int8_ops > 0 && g.prefill_seconds > 0) {
    const double rate = read.int8_ops / g.prefill_seconds;
    line += fmt::format("; prefill's integer products are {:.2f} GOP a token: {:.0f} GOP/s, {:.0f} % of the {:.0f} GOP/s int8 peak",
                        read.int8_ops / double(g.prompt.computed) / 1e9, rate / 1e9, 100 * rate / limits.int8_ops_per_s,
                        limits.int8_ops_per_s / 1e9);
  }
  return line;
}

}  // namespace lily::cli
