// lily: the program. Finds the command, parses its words, runs it, and turns every failure into one line and an exit
// status.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/parse.h"

namespace lily::cli {
namespace {

constexpr const char* kVersion = "0.1.0";

int fail(int status, const std::string& message) {
  log_error(message);
  return status;
}

void dispatch(const std::vector<std::string>& words) {
  const std::string first = words.empty() ? "" : words[0];
  if (first == "--help" || first == "-h") return put(general_help());
  if (first == "--version") return put(fmt::format("lily {}\n", kVersion));
  if (first.empty()) throw UsageError("a command is missing");
  if (first[0] == '-') throw UsageError(fmt::format("unknown option {}: the command comes first", first));
  const Command* command = find_command(first);
  if (!command) throw UsageError(fmt::format("unknown command '{}'", first));
  try {
    const Settings settings = parse(*command, {words.begin() + 1, words.end()});
    if (settings.help) return put(command_help(*command));
    log_verbose(settings.verbose);
    command->run(settings);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{} (lily {} --help explains)", e.what(), command->name));
  }
}

int guarded(const std::vector<std::string>& words) {
  try {
    dispatch(words);
    return 0;
  } catch (const OutputClosed&) {
    return 0;
  } catch (const UsageError& e) {
    const bool has_hint = std::string(e.what()).find("--help") != std::string::npos;
    return fail(2, has_hint ? e.what() : fmt::format("{} (lily --help lists the commands)", e.what()));
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory");
  } catch (const std::exception& e) {
    return fail(1, e.what());
  }
}

/// A standard descriptor that the caller closed would be given to the next file that is opened: messages would go into
/// a result. In its place comes one that is no good either: reading and writing fail, but messages vanish.
void fill_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY);  // the lowest free one: this
}

}  // namespace
}  // namespace lily::cli

int main(int argc, char** argv) {
  // A reader that goes away shows as EPIPE at the next write (cli/output.h) instead of killing the process.
  std::signal(SIGPIPE, SIG_IGN);
#ifdef SIGXFSZ
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error to explain, not the end
#endif
  lily::cli::fill_standard_descriptors();
  return lily::cli::guarded({argv + 1, argv + argc});
}
