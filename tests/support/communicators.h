// The communicators for which communicator_test.cpp is built.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"

namespace stagegpt::test {

struct CommunicatorUnderTest {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make_backend;
  std::function<std::unique_ptr<Communicator>(Backend& backend)> make;
};

inline std::ostream& operator<<(std::ostream& out, const CommunicatorUnderTest& it) { return out << it.name; }

// Defined once in each test program, in its first source file in CMake.
const std::vector<CommunicatorUnderTest>& communicators_under_test();

}  // namespace stagegpt::test
