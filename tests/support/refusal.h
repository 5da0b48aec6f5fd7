// The error message of a call.
#pragma once

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
