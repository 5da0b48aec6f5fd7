#include "common/app/standard_output.h"

#include <cstdio>
#include <iostream>
#include <stdexcept>

namespace stagegpt {

void flush_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("standard output cannot be written");
  }
}

}  // namespace stagegpt
