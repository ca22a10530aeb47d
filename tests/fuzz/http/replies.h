// What the HTTP fuzzer demands of the replies on a connection. Everything that is not as it should be ends the process.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lily::fuzz {

struct Reply {
  int status = 0;
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;
  bool whole = true;  // false: the body is cut, or not sent since only the head was asked for
};

/// The replies in what a connection gave, each formed as HTTP/1.1 demands. `may_be_cut`: the last need not be complete.
/// `heads`: some requests may have been for heads alone.
std::vector<Reply> split_replies(std::string_view bytes, bool may_be_cut, bool heads);

/// A status that a client's fault or wish can cause; JSON and events that can be read; errors as the API forms them.
void check_reply(const Reply& reply);

/// Whether it cannot be told for certain where the first request in `sent` ends: lengths that differ or are no numbers,
/// a length beside chunks, a coding that is not chunked alone. A reader of its own, for heads that are otherwise beyond
/// doubt; false for others.
bool framing_is_faulty(std::string_view sent);

}  // namespace lily::fuzz
