// One answer on its way to its client: every token becomes text, and text becomes pieces of a stream or the one answer at the end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/app.h"
#include "server/response.h"

namespace lily::server {

class AnswerListener final : public Listener {
 public:
  AnswerListener(App& app, std::shared_ptr<http::Exchange> exchange, ApiRequest request, ChatPrompt prompt, std::string echo);

  /// The head and first piece of a stream; nothing where the answer comes as one.
  void accepted() override;
  bool token(const NextToken& token) override;
  void ended(const Ended& ended) override;

 private:
  void write(const TextDelta& delta);
  void finish_stream(const Ended& ended);
  void fail(const ApiError& error);
  void remember();
  Json logprobs() const;
  http::Reply reply(std::string body, const char* type) const;
  std::int64_t completion_tokens(const Ended& ended) const;

  App& app_;
  std::shared_ptr<http::Exchange> exchange_;
  ApiRequest request_;
  ChatPrompt prompt_;
  std::string echo_;
  AnswerIdentity who_;
  AnswerText text_;
  std::vector<std::int32_t> ids_;        // without the end token
  std::vector<NextToken> logprobs_;      // of the whole answer, or of a stream's next piece
  std::vector<std::int64_t> offsets_;    // … and the characters before each of them, for the older form
  StreamDecoder counted_;                // of all tokens so far, whatever waits for a stop string
  std::int64_t text_offset_ = 0;         // characters it gave
};

}  // namespace lily::server
