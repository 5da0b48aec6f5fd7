// What a program was built from, as --version prints it.
#pragma once

#include <string>

namespace stagegpt {

struct Version {
  std::string number = {};      // "0.1.0", a semantic version
  std::string commit = {};      // 40 hexadecimal digits; empty where the source was no git repository
  bool changed = false;         // source files differed from the commit
  std::string build_type = {};  // "Release"
  std::string compiler = {};    // "GNU 12.2.0"
  std::string processor = {};   // what -march named: "native", "x86-64-v3"; empty: any processor
};

// The version of this program. Only programs have it: the library program_version defines it
// (cmake/version.cmake), so that a new commit relinks no test.
const Version& built_version();

// Three lines: program and version, commit, build.
std::string version_text(const std::string& program, const Version& version);

}  // namespace stagegpt
