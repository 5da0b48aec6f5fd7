#include "common/app/stage.h"

#include <cstdlib>
#include <new>
#include <string_view>

#include "common/app/configuration.h"
#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/comm/tree_sync.h"

namespace stagegpt {
namespace {

// For a comparison. A text may hold bytes that are not UTF-8, which JSON cannot.
std::string exact_text(const Json& value) {
  return value.is_string() ? concat('\'', value.get<std::string>(), '\'') : value.dump();
}

// Each of several processes that do not know of each other would do the whole work, in the same files.
void refuse_several_processes(const RankGroup& group) {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (group.size() > 1 || size == nullptr || std::string_view(size) == "1") return;
  throw AgreedUserError(concat("mpirun has started ", size,
                               " processes, but this one knows no other: use stage 1 or 3, and the "
                               "mpirun of the MPI library with which it was built"));
}

}  // namespace

bool parse_flags(Stage& stage, CommandLine& command_line, int argc, const char* const* argv,
                 const std::function<void()>& check) {
  bool goes_on = false;
  agree(stage.group(), [&] {
    goes_on = command_line.parse(argc, argv);
    if (goes_on) check();
  });
  require_same(stage.group(), {{"--help or --version", goes_on ? "no" : "yes"}});
  if (!goes_on) return false;
  require_same(stage.group(), command_line.call());
  require_same_settings(stage.group(), command_line);
  return true;
}

void require_same_settings(RankGroup& group, const CommandLine& command_line) {
  if (group.size() == 1) return;
  NamedValues values;
  const Json settings = command_line.settings();
  for (const auto& [key, value] : settings.items()) {
    const std::string flag = flag_of_key(key);
    if (!command_line.may_differ_between_ranks(flag)) values.emplace_back(flag, exact_text(value));
  }
  require_same(group, values);
}

void make_reproducible(Machine& machine) {
  machine.backend->set_reproducible(true);
  machine.sync = std::make_unique<TreeSync>(*machine.communicator, *machine.backend);
  machine.description += ", reproducible";
}

int run_stage(int argc, char** argv, std::unique_ptr<Stage> (*make)(),
              int (*body)(Stage& stage, int argc, char** argv)) {
  std::unique_ptr<Stage> stage;  // outlives all output: a launcher may end who is left when one rank is gone
  return run_program(argv[0], [&] {
    stage = make();
    refuse_several_processes(stage->group());
    try {
      const int exit_code = body(*stage, argc, argv);
      stage->finish();
      return exit_code;
    } catch (const std::bad_alloc&) {
      stage->end_all(kOutOfMemory, 1);
      throw;
    } catch (const std::exception& error) {
      if (!is_agreed(error)) stage->end_all(error.what(), exit_code_of(error));
      throw;
    }
  });
}

}  // namespace stagegpt
