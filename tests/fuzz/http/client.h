// The client of the HTTP fuzzer: does what an input says, and tells what came back.
//
// An input's first byte chooses how the client ends (bits 0 and 1) and into what pieces it cuts what it sends (bits 2
// to 7). The rest are the bytes of the requests, with three marks that mutations could not keep right by themselves:
//   0x1f                    a pause, longer than the server waits for anything; of more than kPauses the rest are left
//   out Content-Length: ?       the bytes from the next empty line to 0x1e, or to the end Transfer-Encoding: ? chunked;
//   those bytes are sent as chunks
// 0x1e and 0x1f are not sent themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lily::fuzz {

enum class End { wait, half_close, close, reset };  // what the client does when all is sent

struct Script {
  End end = End::wait;
  std::size_t piece = 0;           // bytes of a write; 0: a part at once
  std::vector<std::string> parts;  // with a pause after each but the last
  std::string sent() const;
};

Script read_script(std::string_view input);

struct Heard {
  std::string bytes;
  bool closed = false;   // in order, by the server
  bool gave_up = false;  // neither closed nor reset within the patience
};

/// A connection to a port of this machine. Everything has a time limit.
class Client {
 public:
  explicit Client(int port);
  ~Client();
  Client(const Client&) = delete;
  /// False: the server takes no more.
  bool send(std::string_view bytes);
  void half_close();
  void reset();
  /// Reads until the server closes or `milliseconds` are over.
  Heard read(int milliseconds);

 private:
  int socket_;
};

/// Sends the script's parts; true when all of it could be sent.
bool play(const Script& script, Client& client);

/// The body of a reply of status 200; anything else ends the process (after a few more tries where it is 408).
std::string ask(int port, std::string_view method, std::string_view path, std::string_view body = {});

/// Ends the process as a finding of the fuzzer.
[[noreturn]] void fault(const std::string& why);

}  // namespace lily::fuzz
