// Lines from the user: edited, with history, on a terminal; as they are from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace lily::cli {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end; nothing at the end of the input. On a terminal `prompt` is shown (on standard
  /// error) and Ctrl-C throws away what was typed and asks again. Error(invalid_argument) for a line beyond all sense
  /// (8 MiB), which is skipped.
  std::optional<std::string> read(const std::string& prompt);
  bool interactive() const { return editor_ != nullptr; }

 private:
  struct Editor;  // libedit
  std::optional<std::string> read_plain();

  std::unique_ptr<Editor> editor_;
  std::string buffer_;  // read from the pipe beyond the last line
  bool ended_ = false;
};

}  // namespace lily::cli
