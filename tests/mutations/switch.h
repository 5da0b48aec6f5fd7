// Included before every file that has mutants: selects the mutant of this process by environment variables.
//   STAGEGPT_MUTANT=N            mutant N; none without it
//   STAGEGPT_MUTANTS_REACHED=F   a file with a byte for each mutant; an evaluated mutant sets its byte to 1
#ifndef STAGEGPT_MUTANT
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace stagegpt::mutants {

inline int chosen = 0;
inline unsigned char* reached = nullptr;  // shared between processes

// Runs before the constructors of static objects. Each source file contains this function; the first call has
// the effect.
__attribute__((constructor(101))) static void read_environment() {
  if (const char* mutant = std::getenv("STAGEGPT_MUTANT")) chosen = std::atoi(mutant);
  const char* path = std::getenv("STAGEGPT_MUTANTS_REACHED");
  const int file = path == nullptr || reached != nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* bytes = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes != MAP_FAILED) reached = static_cast<unsigned char*>(bytes);
  ::close(file);
}

// A template, so that constexpr functions may call it, although it is not constant itself.
template <int mutant>
constexpr bool is_chosen() {
  if (reached != nullptr) [[unlikely]]
    reached[mutant] = 1;
  return mutant == chosen;
}

}  // namespace stagegpt::mutants

// Code that is evaluated at compile time is never mutated.
#define STAGEGPT_MUTANT(id) (!std::is_constant_evaluated() && ::stagegpt::mutants::is_chosen<id>())
#endif
