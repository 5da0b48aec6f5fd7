// Texts that a test expects as a whole, kept in files.
#pragma once

#include <string>

namespace stagegpt::test {

// Expects `text` to be what tests/golden/NAME holds; a failure shows the first line that differs. With
// STAGEGPT_RENEW_GOLDEN=1 in the environment the file is written instead: read what changed before you commit
// it.
void expect_golden(const std::string& text, const std::string& name);

}  // namespace stagegpt::test
