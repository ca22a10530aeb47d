// Starts hub_server.py and stops it with the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "hub/http.h"
#include "hub/hub.h"

namespace lily::hub {

class StandInHub {
 public:
  StandInHub() {
    int to[2], from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) throw std::runtime_error("pipe");
    for (const int end : {to[0], to[1], from[0], from[1]}) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to[0], 0);
      ::dup2(from[1], 1);
      ::execlp("python3", "python3", LILY_SOURCE_DIR "/tests/hub/hub_server.py", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    input_ = to[1];
    FILE* out = ::fdopen(from[0], "r");
    if (std::fscanf(out, "%d %d", &port_, &other_port_) != 2) throw std::runtime_error("hub_server.py did not start");
    std::fclose(out);
  }
  ~StandInHub() {
    ::close(input_);
    ::waitpid(pid_, nullptr, 0);
  }

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int other_port() const { return other_port_; }
  nlohmann::json log() const { return nlohmann::json::parse(Http("", {}).get(endpoint() + "/_log").body); }
  /// Requests for the weights, wherever they went.
  nlohmann::json shard_requests() const {
    nlohmann::json result = nlohmann::json::array();
    for (const auto& entry : log()) {
      if (entry["path"].get<std::string>().find("model.safetensors") != std::string::npos) result.push_back(entry);
    }
    return result;
  }

 private:
  int pid_ = 0, input_ = -1, port_ = 0, other_port_ = 0;
};

class HubTest : public ::testing::Test {
 protected:
  HubTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lily-hub-XXXXXX").string();
    dir = ::mkdtemp(pattern.data());
    options.endpoint = hub.endpoint();
    options.models_dir = dir / "models";
    options.retry_seconds = 0.01;
  }
  ~HubTest() override { std::filesystem::remove_all(dir); }

  PullReport pull(const std::string& name) { return lily::hub::pull("acme/" + name, options); }

  /// The error that pulling ends in. Fails the test when it does not.
  Error error_of(const std::string& name) {
    try {
      pull(name);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << name << " was pulled";
    return Error(ErrorCode::internal, "");
  }

  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::filesystem::path model(const std::string& name) const { return options.models_dir / name; }

  /// The weights are there, and are those of the stand-in: their first bytes are of SHA-256("shard0").
  void expect_whole(const std::string& name) const {
    const std::string shard = text_of(model(name) / "model.safetensors");
    ASSERT_EQ(shard.size(), 300000u);
    EXPECT_EQ(shard.substr(0, 4), "\xda\x2a\xe8\xba");
    EXPECT_TRUE(std::filesystem::exists(model(name) / "config.json"));
    EXPECT_FALSE(std::filesystem::exists(model(name) / "model.safetensors.part"));
    EXPECT_FALSE(std::filesystem::exists(model(name) / "model.safetensors.part.json"));
  }

  StandInHub hub;
  std::filesystem::path dir;
  PullOptions options;
};

inline void expect_says(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "'" << part << "' not in: " << error.what();
}

}  // namespace lily::hub
