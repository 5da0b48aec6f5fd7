// The main of tests that mpirun runs. Rank 0 prints GoogleTest's output, other ranks only their failures,
// with their rank. All ranks exit with 1 if a test has failed on any of them. Each rank names a test that
// takes long, so that what CTest ends for its time is known.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include "common/comm/agreement.h"
#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

MpiSession* the_session = nullptr;
MpiGroup* the_ranks = nullptr;
int the_errors = STDERR_FILENO;  // also while a test captures what is printed there

// During its lifetime, says once that something takes long.
class LongTest {
 public:
  explicit LongTest(std::string name) : thread_([this, name = std::move(name)] { watch(name); }) {}
  ~LongTest() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    end_.notify_one();
    thread_.join();
  }
  LongTest(const LongTest&) = delete;
  LongTest& operator=(const LongTest&) = delete;

 private:
  void watch(const std::string& name) {
    constexpr std::chrono::seconds kLong(60);
    std::unique_lock lock(mutex_);
    if (end_.wait_for(lock, kLong, [this] { return ended_; })) return;
    dprintf(the_errors, "rank %d: %s has taken %d s so far\n", ranks().rank(), name.c_str(),
            static_cast<int>(kLong.count()));
  }

  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

class FailuresOfARank final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = concat(test.test_suite_name(), '.', test.name());
    long_test_.emplace(test_);
  }
  void OnTestEnd(const testing::TestInfo&) override { long_test_.reset(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const std::string what = concat(test_, ", ", result.file_name() ? result.file_name() : "unknown file",
                                    ':', result.line_number(), ": ", result.summary());
    // The test has ended on this rank, and the other ranks would wait for this rank.
    if (result.fatally_failed()) the_session->end_all(what, 1);
    if (!ranks().is_root()) std::fprintf(stderr, "rank %d: %s\n", ranks().rank(), what.c_str());
  }

  std::string test_;
  std::optional<LongTest> long_test_;
};

}  // namespace

MpiGroup& ranks() { return *the_ranks; }

}  // namespace stagegpt::test

int main(int argc, char** argv) {
  using namespace stagegpt;
  testing::InitGoogleTest(&argc, argv);
  test::the_errors = dup(STDERR_FILENO);
  MpiSession session;
  MpiGroup group(session, MPI_COMM_WORLD);
  test::the_session = &session;
  test::the_ranks = &group;
  testing::UnitTest::GetInstance()->listeners().Append(new test::FailuresOfARank);
  const bool failed = RUN_ALL_TESTS() != 0;
#if defined(__SANITIZE_ADDRESS__)
  // MPI_Finalize unloads plugins. After it, leaks of the MPI library could not be distinguished from ours, so
  // leaks are checked before it.
  __lsan_do_leak_check();
#endif
  return any(group, failed) ? 1 : 0;
}
