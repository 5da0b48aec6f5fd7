#include "common/train/gather_report.h"

#include <algorithm>

#include "common/comm/agreement.h"
#include "common/train/non_finite.h"

namespace stagegpt {

void gather_report(const Grid& grid, const StepDivision& division, std::span<const float> losses,
                   StepReport& report) {
  RankGroup& group = grid.world().group();
  const PhaseSeconds& seconds = report.seconds;
  const double own_seconds = seconds.total() - seconds.communication;
  std::vector<double> own = {own_seconds};
  own.insert(own.end(), losses.begin(), losses.end());
  const std::vector<double> all = gather(group, own);
  // In the order of ranks, which is the order of sub-batches: it does not depend on the number of ranks.
  // Tensor ranks have the same losses, and of stages only the last has them.
  const auto tensor_ranks = static_cast<std::size_t>(grid.tensor().size()),
             first_of_last =
                 static_cast<std::size_t>(group.size() - grid.data().size() * grid.tensor().size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % own.size() == 0) {
      report.rank_seconds.push_back(all[i]);
    } else if (const std::size_t rank = i / own.size(); rank >= first_of_last && rank % tensor_ranks == 0) {
      report.loss += all[i] / static_cast<double>(division.all_passes());
    }
  }
  report.loss = unsigned_nan(report.loss);
  const auto [least, most] = std::ranges::minmax_element(report.rank_seconds);
  report.least_rank_seconds = *least;
  report.most_rank_seconds = *most;
  report.slowest_rank = static_cast<int>(most - report.rank_seconds.begin());
}

}  // namespace stagegpt
