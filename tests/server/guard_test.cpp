#include "server/guard.h"

#include <gtest/gtest.h>

namespace lily::server {
namespace {

http::RequestHead get(const std::string& path, http::Fields fields) {
  return {.method = "GET", .path = path, .query = {}, .fields = std::move(fields)};
}
http::RequestHead post(const std::string& path, http::Fields fields) {
  http::RequestHead head = get(path, std::move(fields));
  head.method = "POST";
  return head;
}
int status_of(const Guard& guard, const http::RequestHead& head) {
  const auto reply = guard.check(head);
  return reply ? reply->status : 200;
}

TEST(Guard, HostNames) {
  EXPECT_EQ(host_name("LocalHost:8000"), "localhost");
  EXPECT_EQ(host_name("a.example."), "a.example");
  EXPECT_EQ(host_name("[::1]:80"), "::1");
  EXPECT_EQ(host_name("[::1]"), "::1");
  for (const char* bad : {"", "a:b", "[::1", "[::1]x", "a b", "a/b", "evil@localhost", "a\tb", "a,b"}) EXPECT_EQ(host_name(bad), "") << bad;
}

TEST(Guard, HostsThatMayBeNamed) {
  const Guard guard({.api_key = {}, .allowed_hosts = {"My.Box"}, .allowed_origins = {}});
  for (const char* good : {"localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3", "my.box", "MY.BOX.:80", "a.localhost"})
    EXPECT_EQ(status_of(guard, get("/health", {{"host", good}})), 200) << good;
  for (const char* bad : {"evil.example", "localhost.evil.example", "my.box.evil", "notmy.box", "127.0.0.1.evil.example", "xlocalhost", "1.2.3"})
    EXPECT_EQ(status_of(guard, get("/health", {{"host", bad}})), 403) << bad;
  EXPECT_EQ(status_of(guard, get("/health", {})), 400);
  EXPECT_EQ(status_of(guard, get("/health", {{"host", "localhost"}, {"host", "localhost"}})), 400);
}

TEST(Guard, WhatAnOriginLooksLike) {
  for (const char* good : {"https://chat.example", "http://localhost:3000", "http://[::1]:80", "chrome-extension://abcdef", "null"})
    EXPECT_TRUE(is_origin(good)) << good;
  for (const char* bad : {"", "*", "chat.example", "https://", "://x", "https://chat.example/", "https://chat.example/page", "https://*.example"})
    EXPECT_FALSE(is_origin(bad)) << bad;
}

TEST(Guard, OriginsOfPages) {
  const Guard guard({.api_key = {}, .allowed_hosts = {}, .allowed_origins = {"https://Chat.example"}});
  const auto with = [&](const char* origin) { return status_of(guard, get("/status", {{"host", "localhost:8000"}, {"origin", origin}})); };
  for (const char* good : {"http://localhost:8000", "HTTP://LOCALHOST:8000", "https://chat.example"}) EXPECT_EQ(with(good), 200) << good;
  for (const char* bad : {"null", "", "http://localhost:8001", "http://evil.example", "https://chat.example.evil", "http://chat.example", "file://"})
    EXPECT_EQ(with(bad), 403) << bad;
}

TEST(Guard, TheKeyIsNeededEverywhereButForHealthAndThePage) {
  const Guard guard({.api_key = "secret", .allowed_hosts = {}, .allowed_origins = {}});
  const auto with = [&](const char* path, const char* name, const char* value) {
    return status_of(guard, get(path, {{"host", "localhost"}, {name, value}}));
  };
  for (const char* path : {"/v1/models", "/status", "/metrics", "/v1/chat/completions", "/nowhere", "/health/", "/webx", "/v1/models/tiny"}) {
    EXPECT_EQ(with(path, "x", "y"), 401) << path;
    EXPECT_EQ(with(path, "authorization", "Bearer wrong"), 401);
    EXPECT_EQ(with(path, "authorization", "Bearer secre"), 401);
    EXPECT_EQ(with(path, "authorization", "Bearer secret2"), 401);
    EXPECT_EQ(with(path, "authorization", "Bearer "), 401);
    EXPECT_EQ(with(path, "authorization", "Basic secret"), 401);
    EXPECT_EQ(with(path, "authorization", "Bearer secret"), 200);
    EXPECT_EQ(with(path, "authorization", "bearer secret"), 200);
    EXPECT_EQ(with(path, "x-api-key", "secret"), 200);
  }
  for (const char* path : {"/health", "/", "/web/app.js"}) EXPECT_EQ(with(path, "x", "y"), 200) << path;
}

TEST(Guard, ABodyComesAsJson) {
  const Guard guard({});
  const auto with = [&](const char* type) { return status_of(guard, post("/tokenize", {{"host", "localhost"}, {"content-type", type}})); };
  for (const char* good : {"application/json", "Application/JSON; charset=utf-8", "application/json ;x"}) EXPECT_EQ(with(good), 200) << good;
  for (const char* bad : {"text/plain", "", ";", "application/jsonx", "text/plain; application/json", "application/x-www-form-urlencoded"})
    EXPECT_EQ(with(bad), 415) << bad;
  EXPECT_EQ(status_of(guard, post("/tokenize", {{"host", "localhost"}})), 415);
}

TEST(Guard, PreflightIsAnsweredForAllowedPagesAlone) {
  const Guard guard({.api_key = "secret", .allowed_hosts = {}, .allowed_origins = {"https://chat.example"}});
  const auto ask = [&](const char* origin) {
    http::RequestHead head = get("/v1/chat/completions", {{"host", "localhost"}, {"origin", origin}, {"access-control-request-method", "POST"}});
    head.method = "OPTIONS";
    return *guard.check(head);
  };
  const http::Reply good = ask("https://chat.example");
  EXPECT_EQ(good.status, 204);
  EXPECT_EQ(good.fields[0].second, "https://chat.example");
  EXPECT_EQ(ask("https://evil.example").status, 403);
}

}  // namespace
}  // namespace lily::server
