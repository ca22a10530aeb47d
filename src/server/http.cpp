#include "server/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <set>

#include "base/ascii.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace lily::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using tcp = net::ip::tcp;
using ErrorCodeOf = boost::system::error_code;
using std::chrono::milliseconds;

constexpr std::size_t kReadAhead = 64 << 10;  // of what a client sends while its answer is under way

std::string reason(int status) { return std::string(beast::http::obsolete_reason(beast::http::status(status))); }

}  // namespace

const std::string* RequestHead::field(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return &value;
  return nullptr;
}

int RequestHead::count(std::string_view name) const {
  return int(std::count_if(fields.begin(), fields.end(), [&](const auto& f) { return f.first == name; }));
}

struct Server::State {
  State(ServerOptions o, Gate g, Handler h, Refusal r)
      : options(std::move(o)), gate(std::move(g)), handler(std::move(h)), refusal(std::move(r)) {}
  ~State() { stopping = false; }  // connections that go with io must not stop it any more
  void accept();
  void stop(milliseconds time);
  void close_if_done() {
    if (stopping && open.empty()) io.stop();
  }

  ServerOptions options;
  Gate gate;
  Handler handler;
  Refusal refusal;
  std::set<Connection*> open;
  std::atomic<int> count{0};
  bool stopping = false;
  net::io_context io{1};  // below what connections touch in their destructors: they go with it
  tcp::acceptor acceptor{io};
  net::steady_timer timer{io};
};

/// A client's connection: one request after another. All of it runs on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server::State* server, tcp::socket socket)
      : server_(server), limits_(server->options.limits), socket_(std::move(socket)), read_timer_(server->io), write_timer_(server->io) {
    server_->open.insert(this);
    ++server_->count;
  }
  ~Connection() {
    server_->open.erase(this);
    --server_->count;
    server_->close_if_done();
  }

  void start() { read_head(limits_.head_time); }
  void refuse_connection() {
    close_after_ = true;
    refuse(503, "too many connections");
  }
  /// No further request after the one that is under way.
  void close_soon() {
    close_after_ = true;
    if (!answering_) close();
  }

  // What an Exchange asks for; `turn` is the number of its request.
  void reply(std::int64_t turn, Reply r) {
    if (turn != turn_ || answered_) return;
    if (begun_) return close();  // half an answer cannot be taken back: the client sees that it is cut
    std::string head = head_of(r.status, r.fields);
    head += r.status == 204 ? "\r\n" : fmt::format("Content-Length: {}\r\n\r\n", r.body.size());  // 204 has neither body nor length
    answered_ = true;
    send(head + (is_head_ ? "" : r.body));
  }
  void begin(std::int64_t turn, int status, const Fields& fields) {
    if (turn != turn_ || answered_) return;
    begun_ = true;
    chunked_ = version_ >= 11;
    if (!chunked_) close_after_ = true;
    send(head_of(status, fields) + (chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
  }
  void write(std::int64_t turn, const std::string& bytes) {
    if (turn != turn_ || answered_ || bytes.empty()) return;
    send(chunked_ ? fmt::format("{:x}\r\n", bytes.size()) + bytes + "\r\n" : bytes);
  }
  void finish(std::int64_t turn) {
    if (turn != turn_ || answered_) return;
    answered_ = true;
    send(chunked_ ? "0\r\n\r\n" : "");
  }
  void on_gone(std::int64_t turn, std::function<void()> gone) {
    if (turn != turn_ || answered_) return;
    if (closed_) return gone();
    gone_ = std::move(gone);
  }
  net::io_context& io() const { return server_->io; }

 private:
  using Parser = beast::http::request_parser<beast::http::string_body>;

  // ---- reading ----

  /// Ends the wait for input after `time`.
  void read_until(milliseconds time) {
    read_timer_.expires_after(time);
    read_timer_.async_wait([self = shared_from_this()](ErrorCodeOf e) {
      if (!e && self->read_timer_.expiry() <= Clock::now()) self->read_too_slow();
    });
  }
  void read_too_slow() {
    if (closed_ || answering_ || refused_) return;
    if (turn_ > 0 && buffer_.size() == 0 && !parser_->got_some()) return close();  // it had nothing more to ask
    refuse(408, "the request did not come in time");
  }

  void read_head(milliseconds time) {
    is_head_ = false;
    version_ = 11;
    parser_.emplace();
    parser_->header_limit(limits_.head_bytes);
    parser_->body_limit(limits_.body_bytes);
    read_until(time);
    beast::http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCodeOf e, std::size_t) {
      if (self->closed_ || self->refused_) return;
      if (e) return self->read_failed(e);
      self->take_head();
    });
  }

  void take_head() {
    const auto& message = parser_->get();
    version_ = message.version();
    head_ = {};
    head_.method = std::string(message.method_string());
    is_head_ = head_.method == "HEAD";
    const std::string target(message.target());
    const auto question = target.find('?');
    head_.path = target.substr(0, question);
    if (question != std::string::npos) head_.query = target.substr(question + 1);
    for (const auto& field : message) head_.fields.emplace_back(ascii_lower(std::string_view(field.name_string().data(), field.name_string().size())), std::string(field.value()));
    close_after_ = close_after_ || !message.keep_alive() || server_->stopping;
    if (!framing_is_certain()) {
      parser_.reset();  // what it takes for the end of this request need not be one
      return refuse(400, "the only Transfer-Encoding that is understood is chunked, alone, in HTTP/1.1");
    }
    if (std::optional<Reply> refused = server_->gate(head_)) return refuse_with(std::move(*refused));
    const std::string* expect = head_.field("expect");
    if (!expect || parser_->is_done()) return read_body();
    if (ascii_lower(*expect) != "100-continue") return refuse(417, "the only expectation that can be met is 100-continue");
    read_timer_.cancel();
    writing_ = true;  // a refusal waits for its end
    write_until();
    static const std::string text = "HTTP/1.1 100 Continue\r\n\r\n";
    net::async_write(socket_, net::buffer(text), [self = shared_from_this()](ErrorCodeOf e, std::size_t) {
      self->writing_ = false;
      self->write_timer_.cancel();
      if (self->closed_) return;
      if (e) return self->close();
      self->refused_ ? self->flush() : self->read_body();
    });
  }

  /// The parser passes over codings that it does not know and takes such a request to have no body. A proxy that takes them for what
  /// they say would see another end of it.
  bool framing_is_certain() const {
    const std::string* coding = head_.field("transfer-encoding");
    return !coding || (head_.count("transfer-encoding") == 1 && ascii_lower(*coding) == "chunked" && version_ >= 11);
  }

  void read_body() {
    if (parser_->is_done()) return dispatch();
    read_until(limits_.body_time);
    beast::http::async_read_some(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCodeOf e, std::size_t) {
      if (self->closed_ || self->refused_) return;
      if (e) return self->read_failed(e);
      self->read_body();
    });
  }

  void read_failed(ErrorCodeOf e) {
    using Fault = beast::http::error;
    if (e == Fault::end_of_stream || e == net::error::operation_aborted || e == net::error::eof || e == net::error::connection_reset) return close();
    if (e == Fault::body_limit) return refuse(413, fmt::format("the body is larger than {} bytes", limits_.body_bytes));
    if (e == Fault::header_limit || e == Fault::buffer_overflow) return refuse(431, fmt::format("the head is larger than {} bytes", limits_.head_bytes));
    if (e == Fault::partial_message) return close();
    if (e.category() == beast::http::make_error_code(Fault::bad_field).category()) return refuse(400, "this is not HTTP/1.1: " + e.message());
    close();
  }

  // ---- answering ----

  class Answer;
  void dispatch();

  void refuse(int status, const std::string& why) { refuse_with(server_->refusal(status, why)); }
  /// The rest of the request is not read, so nothing can follow on this connection.
  void refuse_with(Reply r) {
    read_timer_.cancel();
    const bool unread = !parser_ || !parser_->is_done();
    close_after_ = close_after_ || unread;
    refused_ = unread;
    answering_ = true;
    answered_ = begun_ = false;
    reply(++turn_, std::move(r));
  }

  /// While an answer is under way: a client that closes is noticed, and what it sends for later is kept.
  void watch() {
    if (watching_ || closed_ || buffer_.size() > kReadAhead) return;
    watching_ = true;
    socket_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](ErrorCodeOf e, std::size_t n) {
      self->watching_ = false;
      if (self->closed_ || self->refused_) return;
      if (e && e != net::error::operation_aborted) return self->close();
      self->buffer_.commit(e ? 0 : n);
      self->answering_ ? self->watch() : self->next_request();
    });
  }

  std::string head_of(int status, const Fields& fields) const {
    std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, reason(status));
    for (const auto& [name, value] : fields) {
      std::string clean = value;  // a field never makes a line of its own
      for (char& c : clean)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
      head += name + ": " + clean + "\r\n";
    }
    return head + (close_after_ ? "Connection: close\r\n" : "Connection: keep-alive\r\n");
  }

  void send(const std::string& bytes) {
    if (closed_) return;
    waiting_ += bytes;
    if (!writing_) flush();
  }

  void flush() {
    if (waiting_.empty()) {
      if (answered_) answer_is_out();
      return;
    }
    writing_ = true;
    under_way_.clear();
    under_way_.swap(waiting_);
    write_until();
    net::async_write(socket_, net::buffer(under_way_), [self = shared_from_this()](ErrorCodeOf e, std::size_t) {
      self->writing_ = false;
      self->write_timer_.cancel();
      if (self->closed_) return;
      e ? self->close() : self->flush();
    });
  }

  void write_until() {
    write_timer_.expires_after(limits_.write_time);
    write_timer_.async_wait([self = shared_from_this()](ErrorCodeOf e) {
      if (!e && self->writing_) self->close();
    });
  }

  void answer_is_out() {
    gone_ = nullptr;
    answering_ = false;
    ++turn_;  // whoever still writes is too late
    if (close_after_) return refused_ ? linger() : close();
    if (!watching_) return next_request();
    // What watch() reads is the beginning of the next request.
    parser_.emplace();
    read_until(limits_.idle_time);
    ErrorCodeOf ignored;
    if (buffer_.size() > 0) socket_.cancel(ignored);  // it was here already
  }
  void next_request() { read_head(limits_.idle_time); }

  /// Lets a refused client read why, although it is still sending: a plain close would tear the answer away.
  void linger() {
    ErrorCodeOf ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    read_timer_.expires_after(milliseconds(1000));
    read_timer_.async_wait([self = shared_from_this()](ErrorCodeOf e) {
      if (!e) self->close();
    });
    drain();
  }
  /// Not into buffer_: a read of the request that came too slowly may still be under way, and writes there.
  void drain() {
    socket_.async_read_some(net::buffer(drained_), [self = shared_from_this()](ErrorCodeOf e, std::size_t) {
      if (self->closed_) return;
      e ? self->close() : self->drain();
    });
  }

 public:
  void close() {
    if (closed_) return;
    closed_ = true;
    ErrorCodeOf ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    read_timer_.cancel();
    write_timer_.cancel();
    if (const auto gone = std::exchange(gone_, nullptr)) gone();
  }

 private:
  Server::State* server_;
  const Limits& limits_;
  tcp::socket socket_;
  net::steady_timer read_timer_, write_timer_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  RequestHead head_;
  unsigned version_ = 11;
  std::int64_t turn_ = 0;   // of the request whose answer is under way
  bool answering_ = false;  // from the request's end to its answer's
  bool begun_ = false;      // the head of an answer in pieces is out
  bool answered_ = false;   // the answer is complete, if not yet written
  bool is_head_ = false, chunked_ = false, close_after_ = false;
  bool refused_ = false;    // before it was read to its end: nothing more is taken for a request
  bool writing_ = false, watching_ = false, closed_ = false;
  std::string waiting_, under_way_;
  std::array<char, 4096> drained_;
  std::function<void()> gone_;
};

/// What a handler holds. Hands everything over to the server's thread.
class Connection::Answer : public Exchange {
 public:
  Answer(std::shared_ptr<Connection> c, std::int64_t turn, RequestHead head, std::string body) : connection_(std::move(c)), turn_(turn) {
    head_ = std::move(head);
    body_ = std::move(body);
  }
  ~Answer() override {
    if (!complete_) reply({.status = 500, .fields = {}, .body = {}});  // nobody can answer any more
    // The last to let go of a connection ends it, and that must happen on the server's thread.
    net::io_context& io = connection_->io();
    net::post(io, [c = std::move(connection_)] {});
  }
  void reply(Reply r) override {
    complete_ = true;
    post([turn = turn_, r = std::move(r)](Connection& c) mutable { c.reply(turn, std::move(r)); });
  }
  void begin(int status, Fields fields) override {
    post([turn = turn_, status, fields = std::move(fields)](Connection& c) { c.begin(turn, status, fields); });
  }
  void write(std::string bytes) override {
    touch();
    post([turn = turn_, bytes = std::move(bytes)](Connection& c) { c.write(turn, bytes); });
  }
  void finish() override {
    complete_ = true;
    post([turn = turn_, timer = timer_](Connection& c) {
      if (timer) timer->clock.cancel();
      c.finish(turn);
    });
  }
  void keep_alive(milliseconds interval, std::string bytes) override {
    timer_ = std::make_shared<Timer>(connection_->io(), interval, std::move(bytes));
    post([turn = turn_, timer = timer_](Connection& c) { Timer::wait(timer, c.weak_from_this(), turn); });
  }
  void on_gone(std::function<void()> gone) override {
    post([turn = turn_, gone = std::move(gone)](Connection& c) mutable { c.on_gone(turn, std::move(gone)); });
  }

 private:
  struct Timer {
    Timer(net::io_context& io, milliseconds i, std::string b) : clock(io), interval(i), bytes(std::move(b)), last(Clock::now().time_since_epoch()) {}
    net::steady_timer clock;
    milliseconds interval;
    std::string bytes;
    std::atomic<Clock::duration> last;  // when a byte was written
    static void wait(const std::shared_ptr<Timer>& t, const std::weak_ptr<Connection>& weak, std::int64_t turn) {
      t->clock.expires_at(Clock::time_point(t->last.load()) + t->interval);
      t->clock.async_wait([t, weak, turn](ErrorCodeOf e) {
        const auto c = weak.lock();
        if (e || !c || c->turn_ != turn || c->answered_ || c->closed_) return;
        if (Clock::now() >= Clock::time_point(t->last.load()) + t->interval) {
          t->last = Clock::now().time_since_epoch();
          c->write(turn, t->bytes);
        }
        wait(t, c, turn);
      });
    }
  };
  void touch() {
    if (timer_) timer_->last = Clock::now().time_since_epoch();
  }
  template <class F>
  void post(F what) {
    net::post(connection_->io(), [c = connection_, what = std::move(what)]() mutable { what(*c); });
  }

  std::shared_ptr<Connection> connection_;
  std::int64_t turn_;
  std::atomic<bool> complete_ = false;
  std::shared_ptr<Timer> timer_;
};

void Connection::dispatch() {
  read_timer_.cancel();
  answering_ = true;
  answered_ = begun_ = false;
  auto exchange = std::make_shared<Answer>(shared_from_this(), ++turn_, std::move(head_), std::move(parser_->get().body()));
  watch();
  server_->handler(std::move(exchange));
}

void Server::State::accept() {
  acceptor.async_accept([this](ErrorCodeOf e, tcp::socket socket) {
    if (stopping) return;
    if (e) {  // out of descriptors, most likely: not again at once
      timer.expires_after(milliseconds(100));
      timer.async_wait([this](ErrorCodeOf) {
        if (!stopping) accept();
      });
      return;
    }
    ErrorCodeOf ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto connection = std::make_shared<Connection>(this, std::move(socket));
    count > options.limits.connections ? connection->refuse_connection() : connection->start();
    accept();
  });
}

void Server::State::stop(milliseconds time) {
  if (stopping) return;
  stopping = true;
  ErrorCodeOf ignored;
  acceptor.close(ignored);
  const std::vector<Connection*> now(open.begin(), open.end());
  for (Connection* c : now) c->close_soon();
  timer.expires_after(time);
  timer.async_wait([this](ErrorCodeOf e) {
    if (!e) io.stop();
  });
  close_if_done();
}

Server::Server(ServerOptions options, Gate gate, Handler handler, Refusal refusal)
    : state_(std::make_unique<State>(std::move(options), std::move(gate), std::move(handler), std::move(refusal))) {
  const ServerOptions& o = state_->options;
  try {
    const tcp::endpoint where(net::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host), std::uint16_t(o.port));
    state_->acceptor.open(where.protocol());
    state_->acceptor.set_option(net::socket_base::reuse_address(true));
    state_->acceptor.bind(where);
    state_->acceptor.listen(256);
  } catch (const boost::system::system_error& e) {
    throw Error(ErrorCode::io, fmt::format("cannot listen on --host {} --port {}: {}{}", o.host, o.port, e.code().message(),
                                           e.code() == boost::system::errc::address_in_use ? " (--port 0 takes a free one)" : ""));
  }
  state_->accept();
}

Server::~Server() = default;

int Server::port() const { return state_->acceptor.local_endpoint().port(); }
void Server::run() { state_->io.run(); }
void Server::stop(milliseconds patience) {
  net::post(state_->io, [s = state_.get(), patience] { s->stop(patience); });
}
int Server::connections() const { return state_->count; }

}  // namespace lily::http
