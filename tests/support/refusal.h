// The error message of a call.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/base/error.h"

namespace stagegpt::test {

// The message of the UserError that `read` throws; "" if it throws none.
inline std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Expects that `read` throws a UserError whose message contains `says`.
inline void expect_refusal(const std::function<void()>& read, const std::string& says) {
  const std::string message = refusal(read);
  EXPECT_NE(message.find(says), std::string::npos)
      << (message.empty() ? "accepted" : message) << "\nexpected: " << says;
}

// The message of any exception that `call` throws; "" if it throws none.
inline std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The message of the InternalError that `call` throws; "" if it throws none.
inline std::string internal_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

}  // namespace stagegpt::test
