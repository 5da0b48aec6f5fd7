// Gradient synchronisation on a grid: that of the data ranks, and what tensor ranks and stages add to it.
#pragma once

#include <optional>

#include "common/model/language_model.h"
#include "common/parallel/parts.h"
#include "common/parallel/pipeline_sync.h"
#include "common/parallel/tensor_sync.h"

namespace stagegpt {

class GridSync {
 public:
  // `data` combines the gradients of the data ranks; `model` is this rank's part. All are borrowed.
  GridSync(const Grid& grid, GradientSync& data, Backend& backend, const LanguageModel& model) : all_(&data) {
    const ParameterTable& table = model.parameters().table();
    if (grid.tensor().size() > 1) all_ = &tensor_.emplace(*all_, grid.tensor(), backend, shared_end(table));
    if (grid.pipeline().size() > 1)
      all_ = &pipeline_.emplace(*all_, grid.pipeline(), backend, table, tied_matrix(model));
  }
  GridSync(const GridSync&) = delete;
  GridSync& operator=(const GridSync&) = delete;

  GradientSync& all() { return *all_; }

 private:
  // The number of a matrix that the first and the last stage have.
  static std::optional<int> tied_matrix(const LanguageModel& model) {
    const int wte = model.parameters().table().find("wte.weight");
    return model.config().tie_word_embeddings && wte >= 0 ? std::optional(wte) : std::nullopt;
  }

  std::optional<TensorSync> tensor_;
  std::optional<PipelineSync> pipeline_;
  GradientSync* all_;
};

}  // namespace stagegpt
