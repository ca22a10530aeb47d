// The rendered prompt against the reference's, byte for byte.
#include "text/chat_template.h"

#include <set>

#include "base/error.h"
#include "support.h"
#include "text/tokenizer.h"

namespace lily {
namespace {

using nlohmann::ordered_json;
using test::data_json;

TemplateStyle style_of(const ordered_json& c) {
  return c["template"] == "qwen3.5" ? TemplateStyle::qwen3_5 : TemplateStyle::qwen3_6;
}

ordered_json body_of(const ordered_json& c) {
  return {{"messages", c["messages"]},
          {"tools", c["tools"]},
          {"chat_template_kwargs", c["kwargs"]},
          {"add_generation_prompt", c["add_generation_prompt"]}};
}

std::string rendered(const ordered_json& body, TemplateStyle style = TemplateStyle::qwen3_6) {
  return render_chat(parse_chat(body), style).text();
}

TEST(ChatTemplate, Golden) {
  std::set<std::string> refused;
  int equal = 0;
  for (const auto& c : data_json("chat.json")) {
    const auto name = c["name"].get<std::string>();
    try {
      const std::string prompt = rendered(body_of(c), style_of(c));
      if (!c.contains("prompt")) continue;
      EXPECT_EQ(prompt, c["prompt"].get<std::string>()) << c["template"] << " " << name;
      ++equal;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      refused.insert(name);
    }
  }
  EXPECT_EQ(refused, (std::set<std::string>{"parts_img", "empty", "bad_role"}));
  EXPECT_GT(equal, 300);
}

}  // namespace
}  // namespace lily
