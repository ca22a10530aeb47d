// A rendered prompt in pieces: what the template wrote, and what other people wrote.
#pragma once

#include <string>

namespace lily {

/// What the place is where a segment starts: places where the conversation cache may keep a snapshot.
enum class Boundary {
  none,
  system_end,         // the system and tools block is complete
  message_end,        // a message is complete
  generation_prompt,  // all messages are complete; what follows opens the answer
};

struct TextSegment {
  std::string text;
  /// Content (of users, tools, the system, history): a control token spelled in it is ordinary text.
  bool is_content = false;
  Boundary at_start = Boundary::none;
};

}  // namespace lily
