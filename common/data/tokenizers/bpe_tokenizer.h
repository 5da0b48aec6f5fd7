// Byte-level byte-pair encoding (BPE), as in GPT-2 (Radford et al., 2019, section 2.2).
//
// A text is split into pieces (splitter.h), and each piece is merged (bpe_merger.h). Every sequence of bytes
// has an encoding.
#pragma once

#include "common/base/json_fwd.h"
#include "common/data/tokenizers/bpe_merger.h"
#include "common/data/tokenizers/tokenizer.h"

namespace stagegpt {

class BpeTokenizer final : public Tokenizer {
 public:
  // Merges are in order of priority. Throws UserError unless each byte is a token, the result of each merge
  // is the concatenation of its two tokens, no pair has two merges, and every other token is the result of a
  // merge.
  BpeTokenizer(Vocabulary vocabulary, std::vector<Merge> merges);

  const std::vector<Merge>& merges() const { return merges_; }

  std::string_view kind() const override { return "bpe"; }
  bool needs_utf8() const override { return false; }
  Json hugging_face() const override;

 private:
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::size_t cut_text(std::string_view text) const override;

  std::vector<Merge> merges_;
  BpeMerger merger_;
};

// The vocabulary of the 256 bytes in GPT-2's order, one token per merge, and the end of text. The results of
// the merges must be numbered from 256 on.
Vocabulary bpe_vocabulary(const std::vector<Merge>& merges);

}  // namespace stagegpt
