// The files of a report, and what it is on standard output.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "stage2_cuda/emulation/profile/block_trace.h"
#include "stage2_cuda/emulation/profile/summary.h"

namespace stagegpt::gpu::emulation {

Json json_of(const LineChain& chain);
Json json_of(const Summary& summary);             // report.json
Json totals_of(const Summary& summary);           // sums of each kernel and of all, without source lines
std::string table_of(const Summary& summary);     // report.txt
std::string cost_of(const AccessCounts& counts);  // "8.00 sectors a request, efficiency 50.0%", as there
// index.html, with the source beside the counts. `has_block`: with a link to block.html.
std::string page_of(const Summary& summary, bool has_block);

Json json_of(const BlockTrace& trace, const Summary& summary);  // block.json
std::string block_page_of(const Json& block);                   // block.html, from block.json

}  // namespace stagegpt::gpu::emulation
