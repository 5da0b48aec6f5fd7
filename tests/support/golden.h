// Expected texts in files.
#pragma once

#include <string>

namespace stagegpt::test {

// Expects `text` to equal the content of tests/golden/NAME; a failure shows the first line that differs. With
// STAGEGPT_RENEW_GOLDEN=1 in the environment, the file is written instead: review the change before you
// commit it.
void expect_golden(const std::string& text, const std::string& name);

}  // namespace stagegpt::test
