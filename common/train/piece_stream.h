// Brings pieces of arenas from the ranks that own them to the ranks that write them to files, so that no rank
// needs memory for more than a piece of what others own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/comm/rank_group.h"
#include "common/model/parameters.h"

namespace stagegpt {

// What this rank has of an arena: parts[i] f32 (owned[i].size()) is its part i, which may be empty. Parts of
// several ranks may have the same elements only if they have the same range.
struct OwnedArena {
  ArenaParts owned;
  std::vector<Tensor> parts;
};

// Elements [begin, begin + size) of an arena: elements [at, at + size) of a piece.
struct PlacedRun {
  std::int64_t at = 0, begin = 0, size = 0;
};

// Where the elements of a piece are in the arenas. Runs that are neighbours in an arena follow each other.
using PieceLayout = std::function<std::vector<PlacedRun>(const Piece&)>;

// In arenas that have the offsets of a table, which is borrowed.
PieceLayout placed_as_in(const ParameterTable& table);

// A piece of an arena that a writer fetches.
struct Fetch {
  std::size_t arena = 0;
  Piece piece;

  bool operator==(const Fetch&) const = default;
};

// What a rank fetches, in this order.
struct Writer {
  int rank = 0;
  std::vector<Fetch> fetches;
};

class PieceStream {
 public:
  // The arenas are those of one model. All ranks give the same layout, and the same writers, which are
  // different ranks. A collective call. It needs 4 MiB; if one rank cannot allocate them, all throw
  // AgreedFailure.
  PieceStream(RankGroup& group, Backend& backend, PieceLayout layout, const std::vector<OwnedArena>& arenas,
              std::vector<Writer> writers);

  // A collective call. On a writer, `body` gets all of its pieces by values(), in their order; on another
  // rank it is empty. Meanwhile all ranks send what they own, and report progress to the watchdog. If the
  // body fails on any rank, the transfers end, and all ranks throw the same error, as agree() does.
  void run(const std::function<void()>& body);
  // The values of an arena, for the body of run().
  ParameterValues values(std::size_t arena);

 private:
  // Leaves the body of a rank after another rank has failed.
  struct OtherRankFailed {};
  // Elements [begin, end) of an arena that rank `from` has in its part `part`.
  struct Source {
    int from = 0;
    std::size_t part = 0;
    std::int64_t end = 0;
  };
  struct Division {
    std::size_t parts = 0;  // of each rank; some have empty ones at their end
    ArenaParts owned;       // those of rank 0, of rank 1, …
    // Indices into `owned`, in the order of the ranges.
    std::vector<std::size_t> in_order;
  };
  static constexpr std::int64_t kElements = 1 << 20;  // per message

  static Division division_of(RankGroup& group, ArenaParts owned);
  // This rank's next fetch.
  void fetch(const Fetch& fetch, std::span<float> out);
  // Carries out the transfers before this rank's next fetch. Returns false at the end, or after a failure.
  bool serve_until_own();
  // The same, and takes part in this rank's remaining fetches, until the end or a failure.
  void serve_rest();
  // One fetch of a writer. `out` is used on that rank; if it is empty there, the elements are discarded.
  void transfer(const Writer& writer, const Fetch& fetch, std::span<float> out);
  // Some runs of it, which are neighbours in the arena.
  void transfer(int writer, std::size_t arena, std::span<const PlacedRun> runs, std::span<float> out);
  // Where `writer` gets element `begin` from: itself, if it has it.
  Source source_of(const Division& division, std::int64_t begin, int writer) const;
  void copy_own(std::size_t arena, std::size_t part, std::int64_t begin, std::span<float> out) const;

  RankGroup& group_;
  Backend& backend_;
  PieceLayout layout_;
  std::vector<OwnedArena> arenas_;
  std::vector<Division> divisions_;  // of the arenas
  std::vector<Writer> writers_;
  std::vector<float> message_;
  // The transfers have an order that all ranks know: the first fetch of each writer, the second of each, ….
  // Every rank carries out its part of them in this order, so none waits for a rank that waits for it.
  std::size_t turn_ = 0, turns_ = 0, writer_ = 0;
  bool failed_ = false;   // this rank
  bool stopped_ = false;  // all, because a rank has failed
};

}  // namespace stagegpt
