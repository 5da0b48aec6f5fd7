// How programs of many ranks are started: by mpirun, or what the user has instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

class Launcher {
 public:
  // `command` is the user's, words with spaces between them; without it, mpirun is looked for. Open MPI's is
  // given flags that let ranks share cores: how many there are is for the experiment to say.
  explicit Launcher(const std::optional<std::string>& command);

  // Why programs cannot be started; empty where they can.
  const std::string& why_not() const { return why_not_; }
  // What `mpirun --version` says, its first line.
  const std::string& version() const { return version_; }
  // Whether ranks are processes below this one, on this host: not known of the user's command.
  bool starts_here() const { return starts_here_; }
  // The words that go before a program's.
  std::vector<std::string> words(std::int64_t ranks) const;
  // Open MPI starts nothing as root, as in a container, unless told twice.
  std::vector<std::pair<std::string, std::string>> environment() const;

 private:
  std::vector<std::string> command_;
  std::string why_not_, version_;
  bool starts_here_ = false;
};

// Messages without what mpirun adds at the end, between lines of dashes: that a rank has failed.
std::string before_launcher(const std::string& errors);
// The line in which a program says why it has ended, without its name.
std::string own_words(const std::string& errors);

}  // namespace stagegpt::compare
