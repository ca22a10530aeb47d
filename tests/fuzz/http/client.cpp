#include "client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "replies.h"

namespace lily::fuzz {
namespace {

constexpr std::size_t kPauses = 2, kPieces = 300;
constexpr std::chrono::milliseconds kPause{25};
constexpr char kEndOfRequest = 0x1e, kPauseMark = 0x1f;
constexpr std::string_view kLength = "Content-Length: ?", kChunks = "Transfer-Encoding: ?", kEmptyLine = "\r\n\r\n";

std::string in_chunks(std::string_view body, std::size_t size) {
  std::string out;
  for (std::size_t at = 0; at < body.size(); at += size) {
    const std::string_view chunk = body.substr(at, size);
    out += fmt::format("{:x}\r\n", chunk.size());
    out += chunk;
    out += "\r\n";
  }
  return out + "0\r\n\r\n";
}

/// One request of the input as it is sent, but for the pauses. A pause counts for nothing in lengths.
std::string framed(std::string text, std::size_t chunk) {
  const auto empty_line = text.find(kEmptyLine);
  if (empty_line == std::string::npos) return text;
  std::string head = text.substr(0, empty_line + kEmptyLine.size()), body = text.substr(head.size());
  if (const auto at = head.find(kLength); at != std::string::npos) {
    const auto pauses = std::size_t(std::count(body.begin(), body.end(), kPauseMark));
    head.replace(at + kLength.size() - 1, 1, std::to_string(body.size() - pauses));
  }
  if (const auto at = head.find(kChunks); at != std::string::npos) {
    head.replace(at + kChunks.size() - 1, 1, "chunked");
    std::erase(body, kPauseMark);
    body = in_chunks(body, chunk);
  }
  return head + body;
}

}  // namespace

void fault(const std::string& why) {
  std::fprintf(stderr, "FAULT: %s\n", why.c_str());
  std::abort();
}

std::string Script::sent() const {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

Script read_script(std::string_view input) {
  Script s;
  if (input.empty()) return s;
  const auto choice = static_cast<unsigned char>(input[0]);
  s.end = End(choice & 3);
  s.piece = choice >> 2;
  input.remove_prefix(1);
  std::string all;
  while (!input.empty()) {
    const std::string_view one = input.substr(0, input.find(kEndOfRequest));
    all += framed(std::string(one), s.piece == 0 ? 1000 : s.piece);
    input.remove_prefix(std::min(one.size() + 1, input.size()));
  }
  s.parts.emplace_back();
  for (const char c : all) {
    if (c != kPauseMark) {
      s.parts.back() += c;
    } else if (s.parts.size() <= kPauses) {
      s.parts.emplace_back();
    }
  }
  return s;
}

Client::Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(std::uint16_t(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket_ < 0 || ::connect(socket_, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
    fault(fmt::format("no connection to the server: {}", std::strerror(errno)));
  const int on = 1;
  const timeval limit{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

Client::~Client() {
  ::close(socket_);
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(std::size_t(n));
  }
  return true;
}

void Client::half_close() {
  ::shutdown(socket_, SHUT_WR);
}

void Client::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

Heard Client::read(int milliseconds) {
  Heard heard;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd p{.fd = socket_, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? ::poll(&p, 1, int(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    heard.gave_up = ready == 0;
    if (ready <= 0) return heard;
    char buffer[16384];
    const auto n = ::recv(socket_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    heard.closed = n == 0;
    if (n <= 0) return heard;
    heard.bytes.append(buffer, std::size_t(n));
  }
}

bool play(const Script& script, Client& client) {
  for (std::size_t i = 0; i < script.parts.size(); ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    std::string_view left = script.parts[i];
    for (std::size_t n = 0; !left.empty(); ++n) {
      const std::string_view piece = script.piece == 0 || n == kPieces ? left : left.substr(0, script.piece);
      if (!client.send(piece)) return false;
      left.remove_prefix(piece.size());
    }
  }
  return true;
}

std::string ask(int port, std::string_view method, std::string_view path, std::string_view body) {
  const std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
                                          "application/json\r\nContent-Length: {}\r\n\r\n{}",
                                          method, path, body.size(), body);
  // A machine that is busy with something else lets the few milliseconds pass that a head may take here: then once more.
  for (int left = 20;; --left) {
    Client client(port);
    client.send(request);
    const Heard heard = client.read(30'000);
    const std::vector<Reply> replies = split_replies(heard.bytes, /*may_be_cut=*/false, /*heads=*/false);
    const bool whole = heard.closed && replies.size() == 1;
    if (whole && replies[0].status == 200) return replies[0].body;
    if (!whole || replies[0].status != 408 || left == 0)
      fault(fmt::format("{} {} was answered with: {}", method, path, heard.bytes.substr(0, 1000)));
  }
}

}  // namespace lily::fuzz
