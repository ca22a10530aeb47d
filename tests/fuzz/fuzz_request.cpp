// libFuzzer target: the body of a request. Whatever comes in, it is refused with lily::Error or becomes a prompt; what is told about
// the error is JSON; and every field of the body is read, or listed, or refused.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "server/api_error.h"
#include "server/request.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool chat : {true, false}) {
    try {
      const lily::server::ApiRequest r = chat ? lily::server::parse_chat_request(body) : lily::server::parse_completion_request(body);
      if (!chat) continue;
      for (const lily::TemplateStyle style : {lily::TemplateStyle::qwen3_5, lily::TemplateStyle::qwen3_6}) {
        const lily::RenderedPrompt prompt = lily::render_chat(r.input, style);
        if (prompt.segments.empty()) std::abort();
        for (const lily::TextSegment& s : prompt.segments)  // markup is the template's alone
          if (!s.is_content && s.text.find('\0') != std::string::npos) std::abort();
      }
      if (r.stop.size() > 16 || (r.logprobs && *r.logprobs > 20)) std::abort();
    } catch (const lily::Error&) {
      const std::string told = lily::server::error_json(lily::server::api_error(std::current_exception()));
      if (!nlohmann::json::accept(told)) std::abort();
    }
  }
  return 0;
}
