// A result that cannot be written to standard output is a failure.
#pragma once

namespace stagegpt {

// Writes out what std::cout and stdout still hold. Throws std::runtime_error where something could not be
// written, now or before.
void flush_output();

}  // namespace stagegpt
