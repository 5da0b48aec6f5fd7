// An error on one rank is thrown on all ranks, with the same message.
#include "common/comm/agreement.h"

#include <gtest/gtest.h>

#include <new>

#include "tests/support/mpi_ranks.h"

namespace stagegpt::test {
namespace {

int last() { return ranks().size() - 1; }

// The message of the error that `body` throws. The error must be of a type that all ranks throw together.
template <class Error>
std::string agreed_message(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_TRUE(is_agreed(error));
    return error.what();
  } catch (const std::exception& error) {
    return concat("another type of error: ", error.what());
  }
  return "no error";
}

// These tests need several ranks: a single process throws the original error.
class Agreement : public testing::Test {
 protected:
  void SetUp() override {
    if (ranks().size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  }
};

TEST_F(Agreement, lets_all_go_on_when_none_has_failed) {
  int calls = 0;
  agree(ranks(), [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST_F(Agreement, names_the_rank_that_has_failed) {
  for (int rank = 0; rank < ranks().size(); ++rank) {
    const std::string message = agreed_message<AgreedFailure>([&] {
      agree(ranks(), [&] {
        if (ranks().rank() == rank) throw std::runtime_error("the disk is full");
      });
    });
    EXPECT_EQ(message, concat("rank ", rank, ": the disk is full"));
  }
}

TEST_F(Agreement, names_the_first_of_those_that_have_failed) {
  const std::string message = agreed_message<AgreedFailure>(
      [] { agree(ranks(), [] { throw std::runtime_error(concat("tired of being ", ranks().rank())); }); });
  EXPECT_EQ(message, "rank 0: tired of being 0");
}

TEST_F(Agreement, names_no_rank_when_all_have_failed_alike) {
  const std::string message =
      agreed_message<AgreedUserError>([] { agree(ranks(), [] { user_error("--steps: not 'x'"); }); });
  EXPECT_EQ(message, "--steps: not 'x'");
}

TEST_F(Agreement, keeps_a_users_mistake_a_users_mistake) {
  const std::string message = agreed_message<AgreedUserError>([] {
    agree(ranks(), [] {
      if (ranks().rank() == last()) user_error("--data: cannot open it");
    });
  });
  EXPECT_EQ(message, concat("rank ", last(), ": --data: cannot open it"));
}

TEST_F(Agreement, takes_the_type_of_the_first_error) {
  const std::string message = agreed_message<AgreedFailure>([] {
    agree(ranks(), [] {
      if (ranks().rank() > 0) user_error("a mistake");
      throw std::bad_alloc();
    });
  });
  EXPECT_EQ(message, "rank 0: out of memory");
}

TEST_F(Agreement, on_something_agreed_already_adds_nothing) {
  const std::string message = agreed_message<AgreedUserError>([] {
    agree(ranks(), [] {
      agree(ranks(), [] {
        if (ranks().rank() == last()) user_error("a mistake");
      });
    });
  });
  EXPECT_EQ(message, concat("rank ", last(), ": a mistake"));
}

TEST_F(Agreement, the_root_alone_runs_what_is_for_the_root) {
  int calls = 0;
  on_root(ranks(), [&] { ++calls; });
  EXPECT_EQ(calls, ranks().is_root() ? 1 : 0);
}

TEST_F(Agreement, what_fails_on_the_root_fails_on_all) {
  const auto failing = [](const auto& error) {
    return [error] { on_root(ranks(), [error] { throw error; }); };
  };
  EXPECT_EQ(agreed_message<AgreedFailure>(failing(std::runtime_error("the disk is full"))),
            "the disk is full");
  EXPECT_EQ(agreed_message<AgreedUserError>(failing(UserError("--data: is empty"))), "--data: is empty");
  EXPECT_EQ(agreed_message<AgreedFailure>(failing(std::bad_alloc())), "out of memory");
}

TEST_F(Agreement, one_that_a_signal_has_stopped_stops_all) {
  for (int rank = 0; rank < ranks().size(); ++rank) {
    const auto stopped = [rank] {
      if (ranks().rank() == rank) throw Stopped();
    };
    EXPECT_THROW(agree(ranks(), stopped), AgreedStop);
    EXPECT_EQ(agreed_message<AgreedStop>([&] { agree(ranks(), stopped); }), Stopped().what());
  }
  EXPECT_THROW(on_root(ranks(), [] { throw Stopped(); }), AgreedStop);
}

TEST_F(Agreement, an_error_is_told_though_another_rank_was_stopped) {
  const std::string message = agreed_message<AgreedUserError>([] {
    agree(ranks(), [] {
      if (ranks().rank() == last()) user_error("--data: cannot open it");
      throw Stopped();
    });
  });
  EXPECT_EQ(message, concat("rank ", last(), ": --data: cannot open it"));
}

TEST_F(Agreement, all_receive_the_roots_text) {
  for (const std::string& text : {std::string(), std::string("a\0b", 3), std::string(100001, 'x')}) {
    EXPECT_EQ(text_from_root(ranks(), [&] { return text; }), text);
    EXPECT_EQ(broadcast_text(ranks(), ranks().rank() == last() ? text : "another", last()), text);
  }
  EXPECT_EQ(agreed_message<AgreedUserError>(
                [] { text_from_root(ranks(), []() -> std::string { user_error("no text"); }); }),
            "no text");
}

TEST_F(Agreement, what_is_true_on_one_rank_is_true_on_any) {
  for (int rank = 0; rank < ranks().size(); ++rank) EXPECT_TRUE(any(ranks(), ranks().rank() == rank));
  EXPECT_TRUE(any(ranks(), true));
  EXPECT_FALSE(any(ranks(), false));
}

TEST_F(Agreement, gathers_values_and_lists_of_them) {
  std::vector<double> values;
  std::vector<std::int64_t> pairs;
  for (int rank = 0; rank < ranks().size(); ++rank) {
    values.push_back(rank + 0.5);
    pairs.insert(pairs.end(), {rank, 10 * rank});
  }
  EXPECT_EQ(gather(ranks(), ranks().rank() + 0.5), values);
  EXPECT_EQ(gather(ranks(), std::vector<std::int64_t>{ranks().rank(), 10 * ranks().rank()}), pairs);
}

TEST_F(Agreement, accepts_what_is_the_same_on_all) {
  EXPECT_NO_THROW(require_same(ranks(), {{"--steps", "10"}, {"--seed", ""}}));
}

TEST_F(Agreement, names_what_differs_and_where) {
  for (int rank = 1; rank < ranks().size(); ++rank) {
    const std::string message = agreed_message<AgreedUserError>([&] {
      require_same(ranks(), {{"--steps", "10"},
                             {"--seed", ranks().rank() == rank ? "8" : "7"},
                             {"--later", std::to_string(ranks().rank())}});
    });
    EXPECT_EQ(message, concat("--seed: 8 on rank ", rank, ", 7 on rank 0; expected the same on all ranks"));
  }
}

TEST(SingleRank, throws_errors_as_they_are) {
  if (ranks().size() > 1) GTEST_SKIP() << "there are others";
  const auto out_of_memory = [] { throw std::bad_alloc(); };
  EXPECT_THROW(agree(ranks(), out_of_memory), std::bad_alloc);
  EXPECT_THROW(on_root(ranks(), out_of_memory), std::bad_alloc);
}

}  // namespace
}  // namespace stagegpt::test
