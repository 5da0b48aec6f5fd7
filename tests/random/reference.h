// Random numbers that were computed independently, by tests/golden/make_random.py.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>

namespace stagegpt::test {

// The part "weights", "masks", "order" or "draws". The function of that name in make_random.py documents its
// entries.
inline nlohmann::json random_reference(const char* part) {
  std::ifstream file(STAGEGPT_SOURCE_DIR "/tests/golden/random.json");
  return nlohmann::json::parse(file).at(part);
}

}  // namespace stagegpt::test
