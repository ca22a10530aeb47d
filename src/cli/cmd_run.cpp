#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/memory_use.h"
#include "base/progress.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/memory_plan.h"
#include "cli/output.h"

namespace lily::cli {
namespace {

using Json = nlohmann::ordered_json;

Json request_body(const Settings& s, const std::string& question) {
  Json messages = Json::array();
  if (s.system) messages.push_back({{"role", "system"}, {"content", *s.system}});
  messages.push_back({{"role", "user"}, {"content", question}});
  Json body = {{"messages", messages}};
  if (s.no_think) body["chat_template_kwargs"] = {{"enable_thinking", false}};
  return body;
}

Json result_json(const Answer& a, const Prompt& prompt, const Sampler& sampler) {
  const SamplerOptions& o = sampler.options();
  return {{"text", a.content},
          {"reasoning", a.reasoning},
          {"finish_reason", a.finish_reason()},
          {"prompt_tokens", prompt.ids.size()},
          {"completion_tokens", a.generated.ids.size()},
          {"cached_tokens", a.generated.prompt.reused},
          {"prefill_tok_s", a.generated.prefill_rate()},
          {"decode_tok_s", a.generated.decode_rate()},
          {"sampling",
           {{"temperature", o.temperature},
            {"top_k", o.top_k},
            {"top_p", o.top_p},
            {"min_p", o.min_p},
            {"presence_penalty", o.presence_penalty},
            {"frequency_penalty", o.frequency_penalty},
            {"repetition_penalty", o.repetition_penalty},
            {"seed", sampler.seed()}}}};
}

}  // namespace

void cmd_run(const Settings& s) {
  if (s.raw && (s.system || s.no_think)) {
    throw UsageError(fmt::format("--raw goes without the chat template, so {} has no effect",
                                 s.system ? "--system" : "--no-think"));
  }
  const Ready ready = load(s, s.max_context, /*snapshots=*/0);
  const Tokenizer tokenizer = load_tokenizer(ready);
  const std::string question = s.prompt ? *s.prompt : read_stdin();
  if (question.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorCode::invalid_argument, "the prompt is empty: give PROMPT or text on standard input");
  const Prompter prompter(ready.dir, tokenizer);
  const Prompt prompt = s.raw ? prompter.raw(question) : prompter.chat(request_body(s, question));
  Sampler sampler(sampler_options(s, ready.dir));
  const auto session = ready.engine->session();

  Answer a;
  bool interrupted = false;
  try {
    const Interrupt interrupt;
    a = answer(*session, prompt, sampler, tokenizer,
               {.max_tokens = s.max_tokens.value_or(0), .show = !s.json, .raw = s.raw}, interrupt);
    interrupted = interrupt.wanted();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::cancelled) throw;
    interrupted = true;
  }
  if (interrupted) die_of_interrupt();
  if (s.json) {
    put(result_json(a, prompt, sampler).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  if (a.generated.finish == Finish::length && !s.json) {
    log_warning(fmt::format("the answer was cut after {} tokens{} (--max-tokens, or the end of the context window)",
                            a.generated.ids.size(), a.content.empty() ? ", before it began" : ""));
  }
  if (s.stats) {
    log_info(stats_line(a.generated));
    const std::string limits = limits_line(a.generated, *ready.engine, ready.model->weights);
    if (!limits.empty()) log_info(limits);
    const MemoryPlan plan = memory_plan(*ready.engine, ready.model->weights, std::int64_t(session->tokens().size()));
    log_info(fmt::format("memory: {} planned for {} tokens, {} of it weights; at most {} was resident",
                         human_bytes(double(plan.total())), plan.context, human_bytes(double(plan.weights)),
                         human_bytes(double(peak_resident_bytes()))));
  }
}

}  // namespace lily::cli
