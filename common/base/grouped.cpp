#include "common/base/grouped.h"

#include <algorithm>
#include <cstdio>

namespace stagegpt {

std::string grouped(double value, int decimals) {
  char printed[400];  // the largest number has 309 digits
  std::snprintf(printed, sizeof printed, "%.*f", decimals, value);
  std::string text = printed;
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == text.npos) return text;  // inf, nan
  for (std::size_t at = std::min(text.find('.'), text.size()); at > begin + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

}  // namespace stagegpt
