#include "common/data/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/data/tokenizers/byte_alphabet.h"
#include "common/data/tokenizers/splitter.h"
#include "common/data/tokenizers/tokenizer_json.h"

namespace stagegpt {
namespace {

// A cache of the tokens of short pieces, because most pieces occur repeatedly. A hash table with one entry
// per slot.
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 15, kMaxTokens = 3;

  explicit PieceCache(std::size_t text_bytes)
      : slots_(std::bit_ceil(std::clamp(text_bytes / kBytesPerSlot, kMinSlots, kMaxSlots))) {}

  struct Slot {
    std::array<std::uint64_t, 2> key{};  // the bytes, padded with zeros; the last byte is their number
    std::array<std::int32_t, kMaxTokens> ids{};
    std::int32_t count = 0;
  };

  // `piece` is a part of `text` with 1 to kMaxBytes bytes, so its key differs from that of an empty slot. If
  // the text has 16 bytes from there, they are read at once, and the bytes after the piece are masked.
  static std::array<std::uint64_t, 2> key(std::string_view piece, std::string_view text) {
    std::array<std::uint64_t, 2> key{};
    const std::size_t n = piece.size();
    if (static_cast<std::size_t>(text.data() + text.size() - piece.data()) >= sizeof key) {
      std::memcpy(key.data(), piece.data(), sizeof key);
      const std::size_t unused = 8 * (8 - (n & 7));
      if (n < 8) {
        key = {key[0] & (~std::uint64_t{0} >> unused), 0};
      } else {
        key[1] &= n == 8 ? 0 : ~std::uint64_t{0} >> unused;
      }
    } else {
      std::memcpy(key.data(), piece.data(), n);
    }
    key[1] |= static_cast<std::uint64_t>(n) << 56;
    return key;
  }

  Slot& slot(const std::array<std::uint64_t, 2>& key) {
    std::uint64_t hash = (key[0] ^ std::rotl(key[1], 29)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
    return slots_[hash & (slots_.size() - 1)];
  }

 private:
  static constexpr std::size_t kBytesPerSlot = 16, kMinSlots = 16, kMaxSlots = std::size_t{1} << 15;

  std::vector<Slot> slots_;
};

static_assert(std::endian::native == std::endian::little,
              "PieceCache::key stores the length after the bytes");

}  // namespace

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary_in, std::vector<Merge> merges)
    : Tokenizer(std::move(vocabulary_in)), merges_(std::move(merges)) {
  const std::vector<std::string>& tokens = vocabulary().tokens;
  for (std::int32_t id = 0; id < size(); ++id) {
    const std::string& token = tokens[static_cast<std::size_t>(id)];
    if (token.size() == 1 && !is_special(id)) merger_.set_byte(static_cast<unsigned char>(token[0]), id);
  }
  if (const auto missing = merger_.missing_byte()) {
    user_error("no token for the byte ", *missing, ": byte-level BPE needs all 256");
  }
  std::size_t number = 0;
  std::vector<bool> made(tokens.size());
  for (const Merge& merge : merges_) {
    const auto token = [&](std::int32_t id) -> const std::string& {
      return tokens.at(static_cast<std::size_t>(id));
    };
    ++number;
    if (token(merge.left) + token(merge.right) != token(merge.result)) {
      user_error("merge ", number, ": its result is not the concatenation of its two tokens");
    }
    if (!merger_.add(merge)) user_error("merge ", number, " occurs twice");
    made[static_cast<std::size_t>(merge.result)] = true;
  }
  // A truncated list of merges would otherwise be accepted, and give other ids.
  for (std::int32_t id = 0; id < size(); ++id) {
    if (!made[static_cast<std::size_t>(id)] && !is_special(id) &&
        tokens[static_cast<std::size_t>(id)].size() > 1) {
      user_error("no merge results in token ", id,
                 ": merges are missing, or it is a special token that is not marked as special");
    }
  }
}

void BpeTokenizer::encode_text(std::string_view text, std::vector<std::int32_t>& ids) const {
  PieceCache cache(text.size());
  Splitter::Cursor cursor(Splitter::gpt2(), text);
  for (std::string_view piece; cursor.next(piece);) {
    if (piece.size() > PieceCache::kMaxBytes) {
      merger_.merge(piece, ids);
      continue;
    }
    const auto key = PieceCache::key(piece, text);
    PieceCache::Slot& slot = cache.slot(key);
    if (slot.key == key) {
      ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
      continue;
    }
    const std::size_t first = ids.size();
    merger_.merge(piece, ids);
    const std::span<const std::int32_t> made = std::span(ids).subspan(first);
    if (made.size() <= PieceCache::kMaxTokens) {
      slot.key = key;
      slot.count = static_cast<std::int32_t>(made.size());
      std::ranges::copy(made, slot.ids.begin());
    }
  }
}

std::size_t BpeTokenizer::cut_text(std::string_view text) const { return Splitter::gpt2().safe_cut(text); }

Json BpeTokenizer::hugging_face() const {
  std::vector<std::string> names;
  for (std::int32_t id = 0; id < size(); ++id) {
    const std::string& token = vocabulary().tokens[static_cast<std::size_t>(id)];
    names.push_back(is_special(id) ? token : to_byte_alphabet(token));
  }
  Json merges = Json::array();
  for (const Merge& merge : merges_) {
    merges.push_back(names[static_cast<std::size_t>(merge.left)] + ' ' +
                     names[static_cast<std::size_t>(merge.right)]);
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"pre_tokenizer", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary_json(names)},
            {"merges", std::move(merges)}}}};
}

Vocabulary bpe_vocabulary(const std::vector<Merge>& merges) {
  Vocabulary vocabulary;
  for (const unsigned char byte : bytes_in_gpt2_order())
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  for (const Merge& merge : merges) {
    check(merge.result == std::ssize(vocabulary.tokens), "bpe: merge gives token ", merge.result);
    const auto token = [&](std::int32_t id) { return vocabulary.tokens.at(static_cast<std::size_t>(id)); };
    vocabulary.tokens.push_back(token(merge.left) + token(merge.right));
  }
  vocabulary.end_of_text = static_cast<std::int32_t>(vocabulary.tokens.size());
  vocabulary.special_tokens = {{kEndOfText, *vocabulary.end_of_text}};
  vocabulary.tokens.emplace_back(kEndOfText);
  return vocabulary;
}

}  // namespace stagegpt
