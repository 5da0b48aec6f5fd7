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
  GridSync(const Grid& grid, GradientSync& data, Backend& backend, const LanguageModel& model)
      : outermost_(&data) {
    const ParameterTable& table = model.parameters().table();
    if (grid.tensor().size() > 1)
      outermost_ = &tensor_.emplace(*outermost_, grid.tensor(), backend, shared_end(table));
    if (grid.pipeline().size() > 1)
      outermost_ = &pipeline_.emplace(*outermost_, grid.pipeline(), backend, table, tied_matrix(model));
  }
  GridSync(const GridSync&) = delete;
  GridSync& operator=(const GridSync&) = delete;

  // What the trainer calls: the synchronisation of the data ranks, within those of the grid.
  GradientSync& sync() { return *outermost_; }

 private:
  // The number of a matrix that the first and the last stage have.
  static std::optional<int> tied_matrix(const LanguageModel& model) {
    const int wte = model.parameters().table().find("wte.weight");
    return model.config().tie_word_embeddings && wte >= 0 ? std::optional(wte) : std::nullopt;
  }

  std::optional<TensorSync> tensor_;
  std::optional<PipelineSync> pipeline_;
  GradientSync* outermost_;
};

}  // namespace stagegpt
