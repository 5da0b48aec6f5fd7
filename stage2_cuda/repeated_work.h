// Work that is recorded in a graph: the first time it is done op by op, so that everything is allocated that
// stays; the second time it is recorded; from then on the graph is launched.
//
// A graph contains the addresses of its tensors. Those that it allocates are freed when the host has recorded
// it, and other work may use their memory until the graph is launched again. If a tensor has their memory at
// that time, the work is done op by op once more, and recorded the time after. The same happens if a
// recording finds too little memory: op by op, blocks that are kept for reuse may be freed first.
#pragma once

#include <functional>

#include "common/backend/recording.h"
#include "common/tensor/caching_allocator.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

void repeat(Recording& recording, CachingAllocator& allocator, StreamHandle stream,
            const std::function<void()>& work);

}  // namespace stagegpt::gpu
