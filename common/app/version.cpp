#include "common/app/version.h"

#include "common/base/error.h"

namespace stagegpt {

std::string version_text(const std::string& program, const Version& version) {
  const std::string commit =
      version.commit.empty() ? "unknown (built outside of a git repository)" : version.commit;
  const std::string processor =
      version.processor.empty() ? "for any processor" : concat("-march=", version.processor);
  return concat(program, " (StageGPT) ", version.number, "\ncommit: ", commit,
                version.changed ? " +changes" : "", "\nbuild:  ", version.build_type, ", ", version.compiler,
                ", ", processor);
}

}  // namespace stagegpt
