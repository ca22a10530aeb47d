// What a client is told when something is wrong: an HTTP status and the error object of the OpenAI API.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "server/http.h"

namespace lily::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // the field at fault; empty: none
  std::string code;   // a word for programs; empty: none
};

/// To be thrown where a request is looked at.
class RequestError : public Error {
 public:
  explicit RequestError(ApiError e) : Error(ErrorCode::invalid_argument, e.message), api(std::move(e)) {}
  ApiError api;
};

/// 400 that names the field.
[[noreturn]] void refuse_field(const std::string& param, const std::string& what);

/// Whatever was thrown. An Error(invalid_argument) whose message begins "field: " names that field; what is not of the client's
/// making is a 500 without details.
ApiError api_error(std::exception_ptr thrown);

/// {"error": {message, type, param, code}}
std::string error_json(const ApiError& e);
http::Reply error_reply(const ApiError& e);

}  // namespace lily::server
