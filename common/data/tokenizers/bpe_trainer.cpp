#include "common/data/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "common/base/error.h"
#include "common/data/tokenizers/byte_alphabet.h"
#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

constexpr std::int32_t kBytes = 256;
constexpr std::int64_t kMinFrequency = 2;

class BpeTrainer {
 public:
  explicit BpeTrainer(std::span<const PieceCount> pieces);

  // Chooses the next merge and applies it to all words; nullopt if no pair occurs often enough.
  std::optional<Merge> next();

 private:
  using Key = PairMap<int>::Key;

  struct Word {
    std::size_t first;  // in symbols_
    std::uint32_t length;
    std::int64_t count;
  };
  struct Pair {
    std::int64_t count = 0;
    // The words that contain the pair or did before. No duplicates, because words are visited in order.
    std::vector<std::uint32_t> words;
  };
  struct Candidate {
    std::int64_t count;
    Key key;
    bool operator<(const Candidate& other) const {  // priority_queue returns the largest first
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  std::int32_t* symbols(const Word& word) { return symbols_.data() + word.first; }
  void count_pair(Key key, std::uint32_t word, std::int64_t change);
  void merge_in_word(std::uint32_t index, const Merge& merge);

  std::vector<std::int32_t> symbols_;  // of all words, concatenated
  std::vector<Word> words_;
  PairMap<Pair> pairs_;
  std::vector<Key> new_pairs_;
  // Counts may be outdated, but never too small: a merge creates only pairs with its own new token, so the
  // count of an existing pair can only decrease.
  std::priority_queue<Candidate> queue_;
  std::int32_t next_id_ = kBytes;
};

BpeTrainer::BpeTrainer(std::span<const PieceCount> pieces) {
  std::array<std::int32_t, kBytes> ids{};
  const auto order = bytes_in_gpt2_order();
  for (std::int32_t id = 0; id < kBytes; ++id) ids[order[static_cast<std::size_t>(id)]] = id;
  for (const auto& [piece, count] : pieces) {
    StopSignals::throw_if_requested();
    if (piece.size() < 2) continue;
    const auto index = static_cast<std::uint32_t>(words_.size());
    words_.push_back({symbols_.size(), static_cast<std::uint32_t>(piece.size()), count});
    for (const char byte : piece) symbols_.push_back(ids[static_cast<unsigned char>(byte)]);
    const std::int32_t* symbol = symbols(words_.back());
    for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
      count_pair(PairMap<Pair>::key(symbol[i], symbol[i + 1]), index, count);
    }
  }
  for (const Key key : new_pairs_) queue_.push({pairs_.find(key)->count, key});
}

void BpeTrainer::count_pair(Key key, std::uint32_t word, std::int64_t change) {
  const auto [pair, is_new] = pairs_.emplace(key);
  if (is_new) new_pairs_.push_back(key);
  pair.count += change;
  if (change > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
}

std::optional<Merge> BpeTrainer::next() {
  while (!queue_.empty()) {
    const auto [count, key] = queue_.top();
    queue_.pop();
    Pair& pair = pairs_.emplace(key).first;
    if (pair.count != count) {  // the count is outdated
      if (pair.count >= kMinFrequency) queue_.push({pair.count, key});
      continue;
    }
    if (count < kMinFrequency) return std::nullopt;
    const Merge merge{static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xFFFFFFFF),
                      next_id_++};
    // Moved out, because new pairs may reallocate the map. The count is left as it is: the pair never occurs
    // again.
    const std::vector<std::uint32_t> words = std::exchange(pair.words, {});
    new_pairs_.clear();
    for (const std::uint32_t word : words) merge_in_word(word, merge);
    for (const Key made : new_pairs_) queue_.push({pairs_.find(made)->count, made});
    return merge;
  }
  return std::nullopt;
}

void BpeTrainer::merge_in_word(std::uint32_t index, const Merge& merge) {
  Word& word = words_[index];
  std::int32_t* symbol = symbols(word);
  const auto key = [](std::int32_t left, std::int32_t right) { return PairMap<Pair>::key(left, right); };
  // Symbols [0, kept) are done; symbols [i, length) are unchanged. Each merge removes the pairs with its two
  // neighbours and adds those of its result. Example "abab": when the left "ab" becomes X, (b,a) is removed
  // and (X,a) is added; when the right "ab" becomes X, (X,a) is removed and (X,X) is added.
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < word.length; ++kept) {
    if (i + 1 == word.length || symbol[i] != merge.left || symbol[i + 1] != merge.right) {
      symbol[kept] = symbol[i++];
      continue;
    }
    i += 2;
    if (kept > 0) {
      count_pair(key(symbol[kept - 1], merge.left), index, -word.count);
      count_pair(key(symbol[kept - 1], merge.result), index, word.count);
    }
    if (i < word.length) {
      count_pair(key(merge.right, symbol[i]), index, -word.count);
      count_pair(key(merge.result, symbol[i]), index, word.count);
    }
    symbol[kept] = merge.result;
  }
  word.length = kept;
}

}  // namespace

std::vector<Merge> train_merges(std::span<const PieceCount> pieces, std::size_t count) {
  BpeTrainer trainer(pieces);
  std::vector<Merge> merges;
  while (merges.size() < count) {
    StopSignals::throw_if_requested();
    const std::optional<Merge> merge = trainer.next();
    if (!merge) break;
    merges.push_back(*merge);
  }
  return merges;
}

std::unique_ptr<BpeTokenizer> train_bpe(const PieceCounts& counts, std::int64_t vocab_size) {
  constexpr std::int64_t kSpecial = 1;  // end of text
  if (vocab_size < kBytes + kSpecial) {
    user_error("--vocab-size: ", vocab_size, ", expected at least ", kBytes + kSpecial,
               ": 256 bytes and the end of text");
  }
  std::vector<Merge> merges =
      train_merges(counts.sorted(), static_cast<std::size_t>(vocab_size - kBytes - kSpecial));
  Vocabulary vocabulary = bpe_vocabulary(merges);
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(merges));
}

}  // namespace stagegpt
