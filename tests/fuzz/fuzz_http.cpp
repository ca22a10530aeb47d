// libFuzzer target: what a client may send over connections, against the whole server with the bundled model, in this
// process. Whatever comes in, replies are well formed and blame no fault on the server; a request whose end cannot be
// told for certain is refused and ends its connection; nothing is left running; and a fixed question has the same
// answer, to the bit, as before. http/client.h says what an input is, http/planted.h how it is known that faults are
// found.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "http/client.h"
#include "http/planted.h"
#include "http/replies.h"
#include "model/load.h"
#include "server/app.h"

namespace lily::fuzz {
namespace {

constexpr int kProbeEvery = 100;  // inputs
constexpr std::chrono::seconds kPatience{8};

LoadedModel load_tiny() {
  return load_model(LILY_SOURCE_DIR "/models/tiny", {});
}

EngineOptions engine_options() {
  EngineOptions o;
  o.max_context = 400;  // an answer without max_tokens ends soon
  o.backend.threads = 1;
  return o;
}

server::AppOptions app_options() {
  server::AppOptions o;
  o.model = "tiny";
  o.aliases = {"other"};
  o.turn_bytes = 1 << 20;
  o.keep_alive = std::chrono::milliseconds(1);
  o.scheduler = {.parallel = 3, .queue = 4, .cache_bytes = 64 << 20};
  o.guard = {.allowed_hosts = {"lily.example"}, .allowed_origins = {"https://chat.example"}};
  return o;
}

/// Small enough that inputs reach them.
http::ServerOptions server_options() {
  using std::chrono::milliseconds;
  http::ServerOptions o;
  o.limits = {.body_bytes = 8 << 10,
              .head_bytes = 2 << 10,
              .head_time = milliseconds(10),
              .body_time = milliseconds(10),
              .write_time = milliseconds(2000),
              .idle_time = milliseconds(10)};
  return o;
}

class World {
 public:
  World()
      : model_(load_tiny()),
        engine_(model_.weights, engine_options()),
        tokenizer_(Tokenizer::load(LILY_SOURCE_DIR "/models/tiny")),
        app_(std::make_unique<server::App>(engine_, tokenizer_, model_.weights.bytes(), app_options())),
        server_(
            server_options(), [this](const http::RequestHead& head) { return app_->gate(head); },
            [this](std::shared_ptr<http::Exchange> exchange) {
              if (!planted_.handle(exchange)) app_->handle(std::move(exchange));
            },
            [this](int status, const std::string& why) { return planted_.refuse(status, why); }),
        thread_([this] { server_.run(); }),
        answers_(probe()) {}
  /// The last probe, then an orderly end. What is left by then is a leak.
  ~World() {
    settle();
    check_probe();
    app_->drain();
    server_.stop(std::chrono::seconds(5));
    thread_.join();
    app_.reset();
  }

  void attack(const Script& script) {
    const std::string sent = script.sent();
    Heard heard;
    {
      Client client(server_.port());
      const bool all_sent = play(script, client);
      if (script.end == End::close || script.end == End::reset) {
        if (script.end == End::reset) client.reset();
      } else {
        if (script.end == End::half_close) client.half_close();
        heard = listen(client);
        check(script, sent, heard, all_sent);
      }
    }
    settle();
    if (++attacks_ % kProbeEvery == 0) check_probe();
  }

 private:
  /// What comes until the server closes. While nothing is answered it must do so by itself.
  Heard listen(Client& client) {
    Heard heard = client.read(500);
    if (!heard.gave_up || busy()) return heard;
    Heard more = client.read(5000);
    if (more.gave_up && !busy()) fault("a connection neither answered nor closed");
    more.bytes = heard.bytes + more.bytes;
    return more;
  }

  void check(const Script& script, const std::string& sent, const Heard& heard, bool all_sent) {
    // A client that has closed its side is taken to have gone; what it does not take is torn away.
    const bool may_be_cut = script.end == End::half_close || !heard.closed || !all_sent;
    const std::vector<Reply> replies = split_replies(heard.bytes, may_be_cut, sent.find("HEAD") != std::string::npos);
    std::size_t whole = 0;
    for (const Reply& r : replies) {
      check_reply(r);
      whole += r.status != 100;
    }
    std::size_t asked = 1;  // what is no request has a reply, too
    for (auto at = sent.find("HTTP/1."); at != std::string::npos; at = sent.find("HTTP/1.", at + 1)) ++asked;
    if (whole > asked) fault(fmt::format("{} replies to {} requests", whole, asked - 1));
    if (!framing_is_faulty(sent) || replies.empty()) return;
    if (replies.size() > 1 || (replies[0].status < 400 && replies[0].status != 204))
      fault(fmt::format("a request without a certain end got {} replies, the first of status {}", replies.size(),
                        replies[0].status));
  }

  nlohmann::json status() { return nlohmann::json::parse(ask(server_.port(), "GET", "/status")); }
  bool busy() {
    const nlohmann::json s = status();
    return s["slots"]["running"] != 0 || s["slots"]["reading"] != 0 || s["queue"]["waiting"] != 0;
  }

  /// Until nothing of what came before is under way.
  void settle() {
    const auto begin = Clock::now();
    while (server_.connections() > 0) {
      if (Clock::now() - begin > kPatience) fault(fmt::format("{} connections do not end", server_.connections()));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  std::string probe() {
    const auto begin = Clock::now();
    while (busy())
      if (Clock::now() - begin > kPatience) fault("requests without a client do not end");
    if (ask(server_.port(), "GET", "/health") != R"({"status":"ok"})") fault("not healthy");
    const std::string text = ask(server_.port(), "POST", "/v1/completions",
                                 R"({"prompt":"What is a castle?","temperature":0,"max_tokens":6,"logprobs":5})");
    const std::string chat = ask(
        server_.port(), "POST", "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"Name an antonym of heavy."}],"temperature":0,"enable_thinking":false,"max_tokens":6,"logprobs":true,"top_logprobs":5})");
    return nlohmann::json::parse(text).at("choices").dump() + "\n" + nlohmann::json::parse(chat).at("choices").dump();
  }
  void check_probe() {
    const std::string now = probe();
    if (now != answers_) fault("the probe's answer was\n" + answers_ + "\nand is now\n" + now);
  }

  LoadedModel model_;
  Engine engine_;
  Tokenizer tokenizer_;
  Planted planted_;
  std::unique_ptr<server::App> app_;
  http::Server server_;
  std::thread thread_;
  std::string answers_;
  int attacks_ = 0;
};

std::unique_ptr<World> world;

}  // namespace
}  // namespace lily::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  lily::fuzz::world = std::make_unique<lily::fuzz::World>();
  std::atexit([] { lily::fuzz::world.reset(); });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lily::fuzz::world->attack(lily::fuzz::read_script({reinterpret_cast<const char*>(data), size}));
  return 0;
}
