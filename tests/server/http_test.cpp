// What a connection takes for a request, and what it no longer does, with limits so small that a test can wait for
// them.
#include "server/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace lily::http {
namespace {

using std::chrono::milliseconds;

/// A server that answers every request with its path, and counts them.
class HttpTest : public ::testing::Test {
 protected:
  void TearDown() override {
    server_.stop(milliseconds(2000));
    thread_.join();
  }
  /// Sends the parts with pauses between them and reads to the end; the connection is closed by the server alone.
  std::string talk(const std::vector<std::string>& parts, milliseconds pause = milliseconds(200)) {
    const int s = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(std::uint16_t(server_.port()));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(s, reinterpret_cast<const sockaddr*>(&where), sizeof where), 0);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) std::this_thread::sleep_for(pause);
      EXPECT_EQ(::send(s, parts[i].data(), parts[i].size(), MSG_NOSIGNAL), ssize_t(parts[i].size()));
    }
    std::string heard;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(s, buffer, sizeof buffer, 0)) > 0;) heard.append(buffer, std::size_t(n));
    ::close(s);
    return heard;
  }
  static int replies(const std::string& heard) {
    int n = 0;
    for (auto at = heard.find("HTTP/1.1 "); at != std::string::npos; at = heard.find("HTTP/1.1 ", at + 1)) ++n;
    return n;
  }

  std::atomic<int> requests_ = 0;
  Server server_{
      {.limits = {.head_time = milliseconds(50), .body_time = milliseconds(50), .idle_time = milliseconds(50)}},
      [](const RequestHead& head) {
        return head.path == "/none" ? std::optional<Reply>({.status = 204, .fields = {}, .body = {}}) : std::nullopt;
      },
      [this](const std::shared_ptr<Exchange>& exchange) {
        ++requests_;
        exchange->reply({.status = 200, .fields = {}, .body = exchange->head().path});
      },
      [](int status, const std::string& why) { return Reply{.status = status, .fields = {}, .body = why}; }};
  std::thread thread_{[this] { server_.run(); }};
};

const std::string kNext = "GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST_F(HttpTest, WhatFollowsInTimeIsAnswered) {  // what the other tests' requests would be, were they right
  const std::string heard = talk({"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" + kNext});
  EXPECT_EQ(replies(heard), 2) << heard;
  EXPECT_NE(heard.find("\r\n\r\n/next"), std::string::npos) << heard;
  EXPECT_EQ(requests_, 2);
  EXPECT_EQ(replies(talk({"GET /slow HT", "TP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"}, milliseconds(1))), 1);
  EXPECT_EQ(requests_, 3);
}

TEST_F(HttpTest, WhatComesTooSlowlyIsNoRequestAnyMore) {
  // The rest comes after the refusal, while the connection waits for the client to have read it.
  for (const auto& parts :
       {std::vector<std::string>{"GET /slow HT", "TP/1.1\r\nHost: x\r\n\r\n" + kNext},
        {"POST /slow HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", "cde" + kNext},
        {"POST /slow HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", "abcde" + kNext},
        {"POST /slow HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "cde\r\n0\r\n\r\n" + kNext}}) {
    const std::string heard = talk(parts);
    EXPECT_NE(heard.find("HTTP/1.1 408"), std::string::npos) << heard;
    EXPECT_EQ(heard.find("HTTP/1.1 200"), std::string::npos) << heard;
  }
  EXPECT_EQ(requests_, 0);
}

TEST_F(HttpTest, ARequestWithoutACertainEndIsRefusedAndEndsTheConnection) {
  for (const std::string fields :
       {"Transfer-Encoding: gzip\r\n", "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\nContent-Length: 0\r\n", "Transfer-Encoding:\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 0\r\nContent-Length: 1\r\n", "Content-Length: +0\r\n", "Content-Length: 0x0\r\n"}) {
    const std::string heard = talk({"POST /a HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n0\r\n\r\n" + kNext});
    EXPECT_TRUE(heard.starts_with("HTTP/1.1 400")) << fields << heard;
    EXPECT_EQ(replies(heard), 1) << fields << heard;
  }
  EXPECT_TRUE(talk({"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}).starts_with("HTTP/1.1 400"));
  EXPECT_EQ(requests_, 0);
}

TEST_F(HttpTest, AReplyWithoutABodyHasNoLength) {
  const std::string heard = talk({"GET /none HTTP/1.1\r\n\r\n" + kNext});
  EXPECT_TRUE(heard.starts_with("HTTP/1.1 204")) << heard;
  const auto second = heard.find("HTTP/1.1 200");
  ASSERT_NE(second, std::string::npos) << heard;
  EXPECT_GT(heard.find("Content-Length"), second) << heard;
}

}  // namespace
}  // namespace lily::http
