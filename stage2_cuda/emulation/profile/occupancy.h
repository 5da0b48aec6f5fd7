// How many blocks of a kernel a multiprocessor of the emulated device holds at a time, and what limits it.
// The emulator knows threads and shared memory; registers are known where nvcc has compiled the kernels.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>

namespace stagegpt::gpu::emulation {

// The registers and spilled bytes of a thread, as ptxas allocates them.
struct KernelResources {
  unsigned registers = 0;
  std::size_t spill_bytes = 0;  // stores and loads of registers that are kept in memory
};

// By the kernel's name as the emulator writes it, without namespaces: "sum_kernel<float, 4>".
using ResourceTable = std::map<std::string, KernelResources>;

// A kernel's name without the namespaces of its own and of its template arguments.
std::string plain_name(std::string_view name);

// Reads what `ptxas -v` prints. Other lines are ignored.
ResourceTable parsed_resources(std::istream& in);

// The resources of a kernel by its name in the emulator, which g++ writes without default template arguments:
// there the only one whose name goes on after `kernel`. None if the table has none.
KernelResources resources_of(const ResourceTable& table, std::string_view kernel);

// From kernel_resources.txt beside this program (the build's target of that name writes it). Empty if the
// file is not there, or older than the program, and so perhaps of other kernels.
ResourceTable known_resources();

struct Occupancy {
  unsigned blocks = 0;
  const char* limit = "";  // "threads", "shared memory", "registers" or "blocks"
};

// `registers` of a thread; 0 if they are not known.
Occupancy occupancy_of(unsigned block_threads, std::size_t shared_bytes, unsigned registers);

}  // namespace stagegpt::gpu::emulation
