// The error message of a reader for invalid input.
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

}  // namespace stagegpt::test
