// HTTP/1.1, as narrow as the server needs it. The only header of its library is in http.cpp.
//
// One thread does all input and output; handlers run on it and must not take long. An Exchange is one request and its answer. It
// may be kept and written to from any thread for as long as the answer takes, and it tells when the client has gone.
//
// Limits hold before anything is allocated for a request: sizes of head and body, time for the head, time without a byte of the
// body, time without a byte taken by the client, connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lily::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

struct RequestHead {
  std::string method, path, query;  // path as sent, without the query; not decoded
  Fields fields;                    // names in lower case
  /// The field's value; null when absent. Of several equal fields the first.
  const std::string* field(std::string_view lower_case_name) const;
  int count(std::string_view lower_case_name) const;
};

struct Reply {
  int status = 200;
  Fields fields;
  std::string body;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  const RequestHead& head() const { return head_; }
  const std::string& body() const { return body_; }
  /// The whole answer. Once, in place of begin().
  virtual void reply(Reply reply) = 0;
  /// The head of an answer that comes in pieces; then write() as often as needed and finish(), once.
  virtual void begin(int status, Fields fields) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;
  /// Writes `bytes` whenever `interval` has passed without a byte, from a timer of its own, until finish().
  virtual void keep_alive(std::chrono::milliseconds interval, std::string bytes) = 0;
  /// `gone` is called once, on the server's thread, when the client goes before the answer is complete. Set it before any write.
  virtual void on_gone(std::function<void()> gone) = 0;

 protected:
  RequestHead head_;
  std::string body_;
};

struct Limits {
  std::uint64_t body_bytes = 64 << 20;
  std::uint32_t head_bytes = 32 << 10;
  std::chrono::milliseconds head_time{15'000};   // from the first byte, or from the connection, to the end of the head
  std::chrono::milliseconds body_time{30'000};   // without a byte of the body
  std::chrono::milliseconds write_time{60'000};  // without a byte taken by the client
  std::chrono::milliseconds idle_time{75'000};   // between two requests on a connection
  int connections = 1024;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one
  Limits limits;
};

/// Looks at a request's head before its body is read; a reply refuses it.
using Gate = std::function<std::optional<Reply>(const RequestHead& head)>;
using Handler = std::function<void(std::shared_ptr<Exchange> exchange)>;
/// The reply to what is no request at all, or too large, or too slow: 400, 408, 413, 431, 503.
using Refusal = std::function<Reply(int status, const std::string& why)>;

class Connection;

class Server {
 public:
  /// Binds and listens: Error(io) that names host and port when that fails.
  Server(ServerOptions options, Gate gate, Handler handler, Refusal refusal);
  /// Closes everything. No Exchange may be left by then.
  ~Server();
  int port() const;
  /// Serves until stop().
  void run();
  /// From any thread, or a signal's handler through one: accepts no more connections and closes each after the answer that is under
  /// way on it. run() returns when all are closed, or after `patience`.
  void stop(std::chrono::milliseconds patience);
  int connections() const;

 private:
  friend class Connection;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lily::http
