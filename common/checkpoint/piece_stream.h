// Brings pieces of arenas from the ranks that own them to rank 0, which writes them to files, so that it
// needs memory for no more than a piece of what others own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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

class PieceStream {
 public:
  // The arenas are those of one model. All ranks give the same layout. A collective call. It needs 4 MiB; if
  // one rank cannot allocate them, all throw AgreedFailure.
  PieceStream(RankGroup& group, Backend& backend, PieceLayout layout, const std::vector<OwnedArena>& arenas);

  // A collective call. `body` runs on rank 0, which gets pieces by values(). Meanwhile the others send what
  // they own, and report progress to the watchdog. If the body fails, all ranks throw the same error, as
  // agree() does.
  void run(const std::function<void()>& body);
  // The values of an arena, for the body of run().
  ParameterValues values(std::size_t arena);

 private:
  // What rank 0 asks the others for; or that it needs nothing more.
  struct Request {
    bool is_end = false;
    std::size_t arena = 0;
    Piece piece = {};
  };
  // Where rank 0 gets elements up to `end` of an arena from: part `part` of rank `from`.
  struct Source {
    int from = 0;
    std::size_t part = 0;
    std::int64_t end = 0;
  };
  using Sources = std::map<std::int64_t, Source>;     // by the first element
  static constexpr std::int64_t kElements = 1 << 20;  // per message

  // Each element's source is the first rank that has it: rank 0 itself, if it does.
  static Sources sources_of(RankGroup& group, ArenaParts owned);
  // Answers rank 0's requests until the last one.
  void serve();
  // `out` is used on rank 0.
  void transfer(const Request& request, std::span<float> out);
  // Some runs of it, which are neighbours in the arena.
  void transfer(std::size_t arena, std::span<const PlacedRun> runs, std::span<float> out);
  const Source& source_of(std::size_t arena, std::int64_t begin) const;
  void copy_own(std::size_t arena, std::size_t part, std::int64_t begin, std::span<float> out) const;

  RankGroup& group_;
  Backend& backend_;
  PieceLayout layout_;
  std::vector<OwnedArena> arenas_;
  std::vector<Sources> sources_;  // of the arenas
  std::vector<float> message_;
};

}  // namespace stagegpt
