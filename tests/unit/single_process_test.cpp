// The group and the communicator of a single process.
#include <gtest/gtest.h>

#include <array>

#include "common/comm/self_communicator.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

TEST(SingleProcess, HasItselfAlone) {
  SingleProcess group;
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_TRUE(group.is_root());
  EXPECT_EQ(group.host(0), "");
  const std::array<std::byte, 2> own = {std::byte{3}, std::byte{4}};
  std::array<std::byte, 2> all = {};
  group.all_gather(own, all);
  EXPECT_EQ(all, own);
  int worked = 0;
  group.while_root_works([&] { ++worked; });
  EXPECT_EQ(worked, 1);
}

TEST(SingleProcess, HasNobodyToTalkTo) {
  SingleProcess group;
  std::array<std::byte, 2> bytes = {};
  EXPECT_EQ(internal_error([&] { group.send(bytes, 1); }),
            "rank group: cannot send to rank 1 with a single process");
  EXPECT_EQ(internal_error([&] { group.receive(bytes, 2); }),
            "rank group: cannot receive from rank 2 with a single process");
  EXPECT_NE(
      internal_error([&] { group.all_gather(bytes, std::span(bytes).first(1)); }).find("2 bytes into 1"),
      std::string::npos);
  const auto backend = make_naive_backend();
  const Tensor tensor = backend->allocate(DType::f32, {1});
  SelfCommunicator communicator;
  EXPECT_EQ(internal_error([&] { communicator.send(tensor, 1); }), "self communicator: there is no rank 1");
  EXPECT_EQ(internal_error([&] { communicator.receive(tensor, 1); }),
            "self communicator: there is no rank 1");
  EXPECT_NO_THROW(communicator.all_reduce(tensor)->wait());
}

}  // namespace
}  // namespace stagegpt::test
