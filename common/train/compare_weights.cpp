#include "common/train/compare_weights.h"

#include <algorithm>
#include <array>

#include "common/comm/agreement.h"
#include "common/io/content_hash.h"

namespace stagegpt {
namespace {

using Hash = std::array<char, 32>;

// The hash of the weights and, if there is one, of their shadow.
Hash hash_of(RankGroup& group, Backend& backend, const Parameters& parameters) {
  constexpr std::int64_t kElements = 1 << 20;  // copied at a time, to need little memory
  ContentHash hash;
  std::vector<std::byte> bytes;
  for (const Tensor& arena : {parameters.weights(), parameters.shadow()}) {
    if (!arena.defined()) continue;
    for (std::int64_t begin = 0; begin < arena.numel(); begin += kElements) {
      const Tensor piece = arena.slice(begin, {std::min(kElements, arena.numel() - begin)});
      bytes.resize(piece.bytes());
      backend.copy_to_host(bytes, piece);
      hash.add(bytes);
      group.beat();
    }
  }
  Hash text{};
  std::ranges::copy(hash.hexadecimal(), text.begin());
  return text;
}

// "rank 1 (node07)", "ranks 1 (node07), 4 (node09)"; if there are many, the first ones and a number.
std::string names(const RankGroup& group, const std::vector<int>& ranks) {
  constexpr std::size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(kNamed, ranks.size()); ++i) {
    text += concat(i == 0 ? "" : ", ", ranks[i], " (", group.host(ranks[i]), ")");
  }
  if (ranks.size() <= kNamed) return text;
  const std::size_t more = ranks.size() - kNamed;
  return concat(text, " and ", more, more == 1 ? " other" : " others");
}

// Compares the hashes of some ranks.
void require_same_hashes(const RankGroup& group, const std::vector<Hash>& hashes,
                         const std::vector<int>& ranks, const std::string& when) {
  std::vector<int> like_most, others;
  const auto hash = [&](int rank) { return hashes[static_cast<std::size_t>(rank)]; };
  // If two values are equally frequent, that of the lower rank.
  const Hash most = hash(*std::ranges::max_element(
      ranks, {}, [&](int rank) { return std::ranges::count(ranks, hash(rank), hash); }));
  for (const int rank : ranks) (hash(rank) == most ? like_most : others).push_back(rank);
  if (others.empty()) return;
  const bool majority = like_most.size() > others.size();
  throw WeightsDiffer(concat("weights ", when, ": ", names(group, others),
                             others.size() == 1 ? " differs from " : " differ from ",
                             majority ? concat("the other ", like_most.size()) : names(group, like_most),
                             majority ? "" : "; without a majority, the correct ones are unknown"));
}

}  // namespace

void require_same_weights(RankGroup& group, Backend& backend, const Parameters& parameters,
                          const std::string& when, int tensor_ranks, int stages) {
  const int ranks_of_stage = group.size() / stages;
  if (ranks_of_stage == tensor_ranks) return;
  Hash own{};
  agree(group, [&] { own = hash_of(group, backend, parameters); });
  const std::vector<Hash> all = gather(group, own);
  for (int first = 0; first < group.size(); first += ranks_of_stage) {
    for (int tensor_rank = 0; tensor_rank < tensor_ranks; ++tensor_rank) {
      std::vector<int> alike;
      for (int rank = tensor_rank; rank < ranks_of_stage; rank += tensor_ranks) alike.push_back(first + rank);
      require_same_hashes(group, all, alike, when);
    }
  }
}

void draw_weights(Communicator& communicator, Backend& backend, Parameters& parameters, std::uint64_t seed,
                  int threads) {
  const std::int64_t slice = parameters.weights().numel() / communicator.size();
  const std::int64_t begin = communicator.rank() * slice;
  agree(communicator.group(), [&] { parameters.initialize(seed, threads, {begin, begin + slice}); });
  if (communicator.size() == 1) return;
  communicator.all_gather(parameters.weights())->wait();
  require_same_weights(communicator.group(), backend, parameters, "after their exchange");
}

void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters) {
  if (communicator.size() == 1) return;
  communicator.broadcast(parameters.weights(), 0);
  require_same_weights(communicator.group(), backend, parameters, "after their broadcast");
}

}  // namespace stagegpt
