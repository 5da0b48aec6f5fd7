// The files of a report.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "stage2_cuda/emulation/profile/summary.h"

namespace stagegpt::gpu::emulation {

Json json_of(const Summary& summary);          // report.json
std::string table_of(const Summary& summary);  // report.txt
std::string page_of(const Summary& summary);   // index.html, with the source beside the counts

}  // namespace stagegpt::gpu::emulation
