// Where NCCL writes the messages that NCCL_DEBUG asks for.
#pragma once

#include <string>

namespace stagegpt::gpu {

// A value of NCCL_DEBUG_FILE. By default NCCL writes to standard output, which is for results. Messages go to
// standard error, unless that is a regular file, which NCCL would truncate: then to a file beside it for each
// process, "<its name>.nccl.<host>.<process>".
std::string nccl_debug_file();

}  // namespace stagegpt::gpu
