#include "stage1_mpi/gradient_syncs.h"

#include "stage1_mpi/sync/bucketed_sync.h"
#include "stage1_mpi/sync/flat_sync.h"
#include "stage1_mpi/sync/overlapped_sync.h"
#include "stage1_mpi/sync/per_tensor_sync.h"
#include "stage1_mpi/sync/zero1_overlapped_sync.h"
#include "stage1_mpi/sync/zero1_sync.h"

namespace stagegpt {

const std::vector<std::string>& gradient_sync_names() {
  static const std::vector<std::string> names = {"per-tensor", "flat",  "bucketed",
                                                 "overlapped", "zero1", "zero1-overlapped"};
  return names;
}

std::unique_ptr<GradientSync> make_gradient_sync(const std::string& name, Communicator& communicator,
                                                 Backend& backend) {
  if (name == "per-tensor") return std::make_unique<PerTensorSync>(communicator, backend);
  if (name == "flat") return std::make_unique<FlatSync>(communicator, backend);
  if (name == "bucketed") return std::make_unique<BucketedSync>(communicator, backend);
  if (name == "overlapped") return std::make_unique<OverlappedSync>(communicator, backend);
  if (name == "zero1") return std::make_unique<Zero1Sync>(communicator, backend);
  check(name == "zero1-overlapped", "gradient sync: unknown name ", name);
  return std::make_unique<Zero1OverlappedSync>(communicator, backend);
}

}  // namespace stagegpt
