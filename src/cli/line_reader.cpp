#include "cli/line_reader.h"

#include <fmt/format.h>
#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "cli/output.h"
#include "cli/terminal_guard.h"

namespace lily::cli {

struct LineReader::Editor {
  TerminalGuard guard;  // before the editor changes the terminal
  EditLine* edit = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string prompt;
  bool cancelled = false;

  Editor() {
    // The editor counts columns by the locale's characters; where the locale knows only bytes, UTF-8 is meant all the
    // same.
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    edit = el_init("lily", stdin, stderr, stderr);  // standard output is for answers
    history = history_init();
    if (!edit || !history) throw Error(ErrorCode::internal, "the line editor cannot be started on this terminal");
    ::history(history, &event, H_SETSIZE, 1000);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &show_prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, history);
    // While a line is edited Ctrl-C is a key and no signal.
    el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit, EL_ADDFN, "lily-cancel", "throw the line away", &cancel);
    el_set(edit, EL_BIND, "^C", "lily-cancel", nullptr);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~Editor() {
    if (history) history_end(history);
    if (edit) el_end(edit);
  }

  static Editor& of(EditLine* e) {
    void* self = nullptr;
    el_get(e, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* show_prompt(EditLine* e) { return of(e).prompt.data(); }
  static unsigned char cancel(EditLine* e, int) {
    of(e).cancelled = true;
    return CC_NEWLINE;
  }

  std::optional<std::string> read() {
    while (true) {
      cancelled = false;
      // The editor would switch the terminal over only after it has shown the prompt: keys in between went astray.
      el_set(edit, EL_PREP_TERM, 1);
      int length = 0;
      const char* text = el_gets(edit, &length);
      if (cancelled) {
        std::fputs("^C\n", stderr);
        continue;
      }
      if (!text || length <= 0) {
        std::fputc('\n', stderr);
        return std::nullopt;
      }
      std::string line(text, std::size_t(length));
      while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
      if (!line.empty()) ::history(history, &event, H_ENTER, line.c_str());
      return line;
    }
  }
};

LineReader::LineReader() {
  if (stdin_is_terminal() && stderr_is_terminal()) editor_ = std::make_unique<Editor>();
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read(const std::string& prompt) {
  if (!editor_) return read_plain();
  editor_->prompt = prompt;
  return editor_->read();
}

std::optional<std::string> LineReader::read_plain() {
  constexpr std::size_t kMostBytes = std::size_t(8) << 20;
  std::size_t searched = 0;
  bool refused = false;
  while (true) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != buffer_.npos || ended_) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end == buffer_.npos ? end : end + 1);
      if (refused)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("a line of more than {} MiB is not read", kMostBytes >> 20));
      if (end == buffer_.npos && line.empty()) return std::nullopt;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    refused = refused || buffer_.size() > kMostBytes;
    if (refused) buffer_.clear();  // what follows, to the end of the line, goes the same way
    searched = buffer_.size();
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n > 0) buffer_.append(bytes, std::size_t(n));
    if (n == 0) ended_ = true;
    if (n < 0 && errno != EINTR) throw Error(ErrorCode::io, fmt::format("standard input: {}", std::strerror(errno)));
  }
}

}  // namespace lily::cli
