// The files of a report, and what it is on standard output.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "stage2_cuda/emulation/profile/summary.h"

namespace stagegpt::gpu::emulation {

Json json_of(const Summary& summary);          // report.json
Json totals_of(const Summary& summary);        // sums of each kernel and of all, without source lines
std::string table_of(const Summary& summary);  // report.txt
std::string page_of(const Summary& summary);   // index.html, with the source beside the counts

}  // namespace stagegpt::gpu::emulation
