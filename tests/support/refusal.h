// The error message of a call.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/base/error.h"

namespace stagegpt::test {

// The message of the error of this type that `call` throws; "" if it throws none.
template <class Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
inline std::string refusal(const std::function<void()>& read) { return message_of<UserError>(read); }
inline std::string failure(const std::function<void()>& call) { return message_of<std::exception>(call); }
inline std::string internal_error(const std::function<void()>& call) {
  return message_of<InternalError>(call);
}

// Expects that `read` throws a UserError whose message contains `says`.
inline void expect_refusal(const std::function<void()>& read, const std::string& says) {
  const std::string message = refusal(read);
  EXPECT_NE(message.find(says), std::string::npos)
      << (message.empty() ? "accepted" : message) << "\nexpected: " << says;
}

}  // namespace stagegpt::test
