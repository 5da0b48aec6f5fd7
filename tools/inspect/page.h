// An inspection as one self-contained HTML page.
#pragma once

#include <string>

#include "common/data/tokenizers/tokenizer.h"
#include "tools/inspect/inspection_json.h"

namespace stagegpt {

// Below 2 MB for any text of at most most_inspected_tokens() tokens. Needs no other file and no network.
std::string inspection_page(const Findings& findings, const Tokenizer& tokenizer);

}  // namespace stagegpt
