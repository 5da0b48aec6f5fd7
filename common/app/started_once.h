// For programs of one process, each of which writes files of its own.
#pragma once

namespace stagegpt {

// Throws UserError if a launcher of MPI has started several processes: they know nothing of each other, and
// all would do the whole work, in the same files. (The programs of the stages have a check of their own.)
void require_started_once();

}  // namespace stagegpt
