#include "common/model/pass.h"

namespace stagegpt {

Pass::Pass(const Gpt2Config& config, const Tensor& ids, const PassOptions& options, const KvCache* cache)
    : config_(&config),
      B_(ids.shape()[0]),
      T_(ids.shape()[1]),
      position_(options.dropout),
      recompute_(options.recompute),
      cache_(cache) {
  const std::int64_t tokens = (cache ? cache->size() : 0) + T_;
  check(tokens <= config.block_size, "gpt2: ", tokens, " tokens in a context of ", config.block_size);
}

Dropout Pass::dropout(RandomStream stream, int index, std::int64_t elements) const {
  if (!position_) return {};
  return {config_->dropout,
          {position_->seed, stream_id(stream, index), position_->step},
          position_->first_sequence * elements,
          position_->on_backend,
          elements};
}

}  // namespace stagegpt
