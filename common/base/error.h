// The two kinds of failure. A user's mistake is a UserError: one line, exit code 2. A broken invariant is
// an InternalError, raised by check(), which stays on in release builds.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace stagegpt {

// Joins its arguments into a string: concat("expected ", 3, " rows").
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// An error in the user's input: a flag, a file or a configuration. The message is one line that names the
// input, what was expected and what was found.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An error in the program itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Throws UserError with the joined parts.
template <class... Parts>
[[noreturn]] void user_error(const Parts&... parts) {
  throw UserError(concat(parts...));
}

// Returns read(). If it throws a UserError, the message is prefixed with `name`, that of a file or a flag.
template <class Name, class Read>
auto naming(const Name& name, const Read& read) {
  try {
    return read();
  } catch (const UserError& error) {
    user_error(name, ": ", error.what());
  }
}

// Throws InternalError with the joined parts unless the condition holds.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]] {
    throw InternalError(concat(parts...));
  }
}

}  // namespace stagegpt
