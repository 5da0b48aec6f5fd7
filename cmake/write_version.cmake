# Run with cmake -P at each build: writes the source file that defines built_version() (common/app/version.h). The file
# is left alone where nothing has changed, so that nothing is compiled again.
#   SOURCE: the source tree   OUTPUT: the file   NUMBER, BUILD_TYPE, COMPILER, PROCESSOR: fields of Version
set(commit "")
set(changed false)
find_program(git git)
if(git)
  # A source tree without .git may lie in another project's repository.
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --show-prefix OUTPUT_VARIABLE prefix RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed AND prefix STREQUAL "")
    execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --verify HEAD OUTPUT_VARIABLE commit
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${git} --no-optional-locks -C ${SOURCE} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE files ERROR_QUIET)
    if(files)
      set(changed true)
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
// Written by cmake/write_version.cmake.
#include "common/app/version.h"

namespace stagegpt {

const Version& built_version() {
  static const Version version{.number = "@NUMBER@",
                               .commit = "@commit@",
                               .changed = @changed@,
                               .build_type = "@BUILD_TYPE@",
                               .compiler = "@COMPILER@",
                               .processor = "@PROCESSOR@"};
  return version;
}

}  // namespace stagegpt
]])
