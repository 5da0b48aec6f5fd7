// Starting programs and waiting for them.
#include "common/system/subprocess.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "common/io/file.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

Subprocess shell(const std::string& script) { return {.argv = {"sh", "-c", script}}; }

// Whether the process exists and is not a zombie.
bool is_alive(const std::string& pid) {
  const std::string stat = read_bytes(std::filesystem::path("/proc") / pid / "stat");
  return !stat.empty() && stat.find(") Z") == stat.npos;
}

TEST(Subprocess, GivesBackWhatTheProgramLeaves) {
  const SubprocessResult result = run_subprocess(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
  EXPECT_FALSE(result.timed_out || result.cancelled);
  EXPECT_EQ(run_subprocess(shell("kill -9 $$")).exit_code, 128 + 9);
}

TEST(Subprocess, ReadsMoreThanAPipeHolds) {
  const SubprocessResult result =
      run_subprocess(shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"));
  EXPECT_EQ(result.output.size(), 300000u);
  EXPECT_EQ(result.errors.size(), 300000u);
}

TEST(Subprocess, HasItsEnvironmentItsDirectoryAndNoInput) {
  const ScratchDirectory directory;
  Subprocess subprocess = shell("echo $STAGEGPT_ADDED; echo ${PATH:+path}; pwd; cat");
  subprocess.environment = {{"STAGEGPT_ADDED", "a b"}};
  subprocess.directory = directory.path();
  const std::string expected = "a b\npath\n" + std::filesystem::canonical(directory.path()).string() + '\n';
  EXPECT_EQ(run_subprocess(subprocess).output, expected);
}

TEST(Subprocess, HasEachVariableOnce) {
  setenv("STAGEGPT_TWICE", "ours", 1);
  Subprocess subprocess{.argv = {"env"}};
  subprocess.environment = {{"STAGEGPT_TWICE", "added"}};
  const std::string variables = '\n' + run_subprocess(subprocess).output;
  unsetenv("STAGEGPT_TWICE");
  EXPECT_NE(variables.find("\nSTAGEGPT_TWICE=added\n"), std::string::npos) << variables;
  EXPECT_EQ(variables.find("\nSTAGEGPT_TWICE=ours\n"), std::string::npos) << variables;
}

// It is in a process group of its own, which a signal to its children needs, and ignores no signal that we
// ignore.
TEST(Subprocess, BeginsWithItsOwnGroupAndTheUsualSignals) {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1};
  std::vector<std::pair<int, void (*)(int)>> before;
  for (const int signal : kSignals) before.emplace_back(signal, std::signal(signal, SIG_IGN));
  // In /proc/PID/stat: process id, (name), state, parent, group.
  const SubprocessResult result = run_subprocess(shell("grep SigIgn /proc/$$/status; cat /proc/$$/stat"));
  for (const auto& [signal, action] : before) std::signal(signal, action);
  unsigned long long ignored = 0;
  int pid = 0, parent = 0, group = 0;
  ASSERT_EQ(
      std::sscanf(result.output.c_str(), "SigIgn: %llx %d %*s %*c %d %d", &ignored, &pid, &parent, &group), 4)
      << result.output;
  for (const int signal : kSignals) EXPECT_EQ(ignored >> (signal - 1) & 1, 0u) << signal;
  EXPECT_EQ(group, pid);
  EXPECT_EQ(parent, getpid());
}

// Otherwise the disk space of a deleted file would not be free until the program ends.
TEST(Subprocess, InheritsNoFileThatWeRead) {
  const ScratchDirectory directory;
  const std::string path = directory.write("weights.bin", "content");
  std::string open_files;
  read_blocks(path, PageCache::use, [&](std::span<const std::byte>) {
    EXPECT_NE(run_subprocess(shell("ls -l /proc/$PPID/fd")).output.find("weights.bin"), std::string::npos);
    open_files = run_subprocess(shell("ls -l /proc/$$/fd")).output;
  });
  EXPECT_NE(open_files, "");
  EXPECT_EQ(open_files.find("weights.bin"), std::string::npos) << open_files;
}

TEST(Subprocess, IsEndedWithItsChildrenAfterTheTimeout) {
  const ScratchDirectory directory;
  Subprocess subprocess = shell("sleep 60 & echo $! > child; wait");
  subprocess.directory = directory.path();
  subprocess.timeout_seconds = 0.3;
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  std::string pid = read_bytes(directory.path() / "child");
  pid.pop_back();
  for (int i = 0; i < 100 && is_alive(pid); ++i) run_subprocess(shell("sleep 0.05"));
  EXPECT_FALSE(is_alive(pid));
}

TEST(Subprocess, IsEndedWhenItIsCancelled) {
  Subprocess subprocess = shell("echo begun >&2; sleep 60");
  std::string heard;
  subprocess.on_errors = [&](std::string_view text) { heard += text; };
  subprocess.cancelled = [&] { return heard == "begun\n"; };
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_TRUE(result.cancelled);
  EXPECT_FALSE(result.timed_out);
}

// After SIGTERM, the program has some seconds to end.
TEST(Subprocess, MayEndByItselfWhenItIsAsked) {
  Subprocess subprocess =
      shell("trap 'sleep 0.2; echo saved; exit 3' TERM; echo begun >&2; while :; do sleep 0.02; done");
  bool begun = false;
  subprocess.on_errors = [&](std::string_view) { begun = true; };
  subprocess.cancelled = [&] { return begun; };
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_EQ(result.output, "saved\n");
  EXPECT_EQ(result.exit_code, 3);
}

// A program that does not end when it is asked to is killed some seconds later.
TEST(Subprocess, IsKilledIfItDoesNotEnd) {
  Subprocess subprocess = shell("trap '' TERM; while :; do sleep 0.1; done");
  subprocess.timeout_seconds = 0.2;
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(result.timed_out);
  EXPECT_GE(result.seconds, 0.2 + 1);
  EXPECT_LT(result.seconds, 60);
}

TEST(Subprocess, TellsHowLongItTook) {
  const double seconds = run_subprocess(shell("sleep 0.3")).seconds;
  EXPECT_GE(seconds, 0.3);
  EXPECT_LT(seconds, 60);
}

// If the caller throws, nothing is left running.
TEST(Subprocess, EndsWithItsCaller) {
  Subprocess subprocess = shell("echo $$ >&2; sleep 60");
  std::string pid;
  subprocess.on_errors = [&](std::string_view text) {
    pid = text.substr(0, text.find('\n'));
    throw std::runtime_error("enough");
  };
  EXPECT_THROW(run_subprocess(subprocess), std::runtime_error);
  ASSERT_NE(pid, "");
  EXPECT_FALSE(is_alive(pid));
}

TEST(Subprocess, DoesNotWaitForWhomItLeavesBehind) {
  Subprocess subprocess = shell("sleep 60 & echo done");
  subprocess.timeout_seconds = 30;
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_EQ(result.output, "done\n");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_FALSE(result.timed_out);
}

// A signal handler delays the parent while it waits. During this time the program writes and ends; the parent
// must still read everything.
TEST(Subprocess, LosesNothingThatIsWrittenJustBeforeTheEnd) {
  struct sigaction slow {
  }, before{};
  slow.sa_handler = [](int) { poll(nullptr, 0, 300); };
  sigaction(SIGUSR1, &slow, &before);
  for (int i = 0; i < 3; ++i) {
    const SubprocessResult result =
        run_subprocess(shell("sleep 0.05; kill -USR1 $PPID; sleep 0.1; echo late; echo late >&2"));
    EXPECT_EQ(result.output, "late\n");
    EXPECT_EQ(result.errors, "late\n");
    EXPECT_EQ(result.exit_code, 0);
  }
  sigaction(SIGUSR1, &before, nullptr);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(run_subprocess({.argv = {"echo", "soon"}}).output, "soon\n");
}

// The parent of the test may have left SIGCHLD ignored.
TEST(Subprocess, HasAnExitCodeThoughEndsOfChildrenAreIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run_subprocess(shell("exit 7")).exit_code, 7);
  std::signal(SIGCHLD, before);
}

TEST(Subprocess, NamesAProgramThatCannotBeStarted) {
  const ScratchDirectory directory;
  const std::string broken = directory.write("broken", "#!/no/such/interpreter\n");
  std::filesystem::permissions(broken, std::filesystem::perms::owner_all);
  for (const std::string& program : {broken, std::string("no-such-program")}) {
    const std::string why = failure([&] { run_subprocess({.argv = {program}}); });
    EXPECT_NE(why.find(program), std::string::npos) << why;
  }
}

TEST(FindProgram, LooksInThePathOnly) {
  EXPECT_TRUE(find_program("sh"));
  EXPECT_FALSE(find_program("no-such-program"));
  EXPECT_FALSE(find_program("/etc/passwd"));  // not executable
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
}

// The first directory that has the program decides; an empty one is the current directory, as for a shell.
TEST(FindProgram, TakesTheDirectoriesInTheirOrder) {
  const ScratchDirectory first, second;
  for (const ScratchDirectory* directory : {&first, &second}) {
    for (const char* name : {"both", "later"}) {
      if (directory == &first && name == std::string_view("later")) continue;
      std::filesystem::permissions(directory->write(name, "#!/bin/sh\n"), std::filesystem::perms::owner_all);
    }
  }
  std::filesystem::create_directory(first.path() / "later");  // no program, though its name fits
  const std::string before = std::getenv("PATH");
  setenv("PATH", (first.path().string() + ":" + second.path().string()).c_str(), 1);
  const auto both = find_program("both"), later = find_program("later");
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(second.path());
  setenv("PATH", "/no/such/directory::", 1);
  const auto current = find_program("later");
  std::filesystem::current_path(here);
  unsetenv("PATH");
  const auto none = find_program("later");
  setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(both, first.path() / "both");
  EXPECT_EQ(later, second.path() / "later");
  EXPECT_EQ(current, std::filesystem::path("./later"));
  EXPECT_FALSE(none);
}

TEST(LastLines, LeavesOutEmptyOnes) {
  EXPECT_EQ(last_lines("a\nb\n\n  \nc\n", 2), "b\nc");
  EXPECT_EQ(last_lines("a", 3), "a");
  EXPECT_EQ(last_lines("", 3), "");
}

TEST(ShellLine, IsReadByAShellAsItWas) {
  const std::vector<std::string> arguments = {"printf", "%s|", "a b", "it's", "", "$HOME", "x=1"};
  EXPECT_EQ(run_subprocess(shell(shell_line(arguments))).output, "a b|it's||$HOME|x=1|");
  EXPECT_EQ(shell_line({"./a", "--b", "c d"}), "./a --b 'c d'");
  EXPECT_EQ(shell_line({"aZ09_-+=./,:@%^"}), "aZ09_-+=./,:@%^");
  EXPECT_EQ(shell_line({"a;b", "é"}), "'a;b' 'é'");
}

}  // namespace
}  // namespace stagegpt::test
