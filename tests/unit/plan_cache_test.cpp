// The file of plans, and what a plan depends on.
#include "stage2_cuda/plan_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "stage2_cuda/plan_key.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using gpu::Epilogue;
using gpu::PlanCache;
using gpu::PlanKey;
using gpu::Precision;
using gpu::ProductOf;

TEST(PlanCache, has_what_was_written) {
  PlanCache cache({"NVIDIA \"H100\"", "cuBLASLt 7"});
  cache.set("b", "0123");
  cache.set("a", "ff");
  cache.set("b", "4567");
  const PlanCache read = PlanCache::parse(cache.text());
  EXPECT_EQ(read.origin(), (gpu::PlanOrigin{"NVIDIA \"H100\"", "cuBLASLt 7"}));
  EXPECT_EQ(read.size(), 2u);
  EXPECT_EQ(*read.find("a"), "ff");
  EXPECT_EQ(*read.find("b"), "4567");
  EXPECT_EQ(read.find("c"), nullptr);
  EXPECT_EQ(read.text(), cache.text());
}

// The order in which products come does not change the file, so that two files can be compared.
TEST(PlanCache, has_one_text_for_the_same_plans) {
  PlanCache one({"d", "l"}), other({"d", "l"});
  one.set("a", "1"), one.set("b", "2");
  other.set("b", "2"), other.set("a", "1");
  EXPECT_EQ(one.text(), other.text());
  EXPECT_EQ(one.text(), R"({
  "version": 1,
  "device": "d",
  "library": "l",
  "plans": {
    "a": "1",
    "b": "2"
  }
}
)");
}

TEST(PlanCache, refuses_other_files) {
  for (const char* text :
       {"", "[]", "{}", R"({"version":2,"device":"d","library":"l","plans":{}})",
        R"({"version":1,"library":"l","plans":{}})", R"({"version":1,"device":"d","plans":{}})",
        R"({"version":1,"device":"d","library":"l"})", R"({"version":1,"device":3,"library":"l","plans":{}})",
        R"({"version":1,"device":"d","library":"l","plans":{"a":1}})"}) {
    EXPECT_THROW(PlanCache::parse(text), UserError) << text;
  }
}

// Addresses of a product that are aligned to 256 bytes. They are not read.
template <class T>
T* address(std::uintptr_t offset = 0) {
  return reinterpret_cast<T*>((std::uintptr_t{1} << 20) + offset);
}

using Bf16Product = ProductOf<Bf16, Bf16>;

Bf16Product product() {
  return {.c = address<Bf16>(),
          .ldc = 64,
          .a = {address<Bf16>(), 32},
          .b = {address<Bf16>(), 64},
          .m = 16,
          .n = 64,
          .k = 32,
          .pre = address<Bf16>()};
}

std::string text(const Bf16Product& of, Precision precision = Precision::bf16) {
  return PlanKey(of, precision).text();
}

TEST(PlanKey, is_another_for_each_part_of_a_product) {
  const std::function<void(Bf16Product&)> changes[] = {
      [](auto& p) { p.m = 17; },
      [](auto& p) { p.n = 65; },
      [](auto& p) { p.k = 33; },
      [](auto& p) { p.ldc = 65; },
      [](auto& p) { p.a.ld = 33; },
      [](auto& p) { p.b.ld = 65; },
      [](auto& p) { p.a.transposed = true; },
      [](auto& p) { p.b.transposed = true; },
      [](auto& p) { p.batch = 2; },
      [](auto& p) { p.batch = 2, p.stride_c = 1; },
      [](auto& p) { p.batch = 2, p.a.stride = 1; },
      [](auto& p) { p.batch = 2, p.b.stride = 1; },
      [](auto& p) { p.accumulate = true; },
      [](auto& p) { p.bias = address<Bf16>(); },
      [](auto& p) { p.bias = address<Bf16>(16); },
      [](auto& p) { p.row_sums = address<Bf16>(), p.epilogue = Epilogue::row_sums; },
      [](auto& p) { p.epilogue = Epilogue::gelu; },
      [](auto& p) { p.epilogue = Epilogue::gelu_backward; },
      [](auto& p) { p.c = address<Bf16>(16); },
      [](auto& p) { p.a.data = address<Bf16>(16); },
      [](auto& p) { p.b.data = address<Bf16>(16); },
      [](auto& p) { p.pre = address<Bf16>(16); },
  };
  std::set<std::string> texts = {text(product())};
  for (const auto& change : changes) {
    Bf16Product changed = product();
    change(changed);
    const std::string of_changed = text(changed);
    EXPECT_TRUE(texts.insert(of_changed).second) << of_changed;
  }
  const ProductOf<Bf16, float> wide{.c = address<float>(),
                                    .ldc = 64,
                                    .a = product().a,
                                    .b = product().b,
                                    .m = 16,
                                    .n = 64,
                                    .k = 32,
                                    .pre = address<float>()};
  EXPECT_TRUE(texts.insert(PlanKey(wide, Precision::bf16).text()).second);
}

TEST(PlanKey, is_the_same_for_other_addresses_of_the_same_alignment) {
  Bf16Product other = product();
  other.c = address<Bf16>(4096), other.a.data = address<Bf16>(256), other.b.data = address<Bf16>(512);
  EXPECT_EQ(text(other), text(product()));
}

// TF32 rounds the factors of products in f32, and those alone.
TEST(PlanKey, tells_tf32_from_f32) {
  const gpu::Product f32{.c = address<float>(),
                         .ldc = 64,
                         .a = {address<float>(), 32},
                         .b = {address<float>(), 64},
                         .m = 16,
                         .n = 64,
                         .k = 32};
  EXPECT_NE(PlanKey(f32, Precision::f32).text(), PlanKey(f32, Precision::tf32).text());
  EXPECT_EQ(text(product(), Precision::tf32), text(product(), Precision::f32));
  EXPECT_EQ(PlanKey(f32, Precision::tf32).text(),
            "tf32 to f32, m 16 n 64 k 32, ld 64 32 64, epilogue none, aligned 256 256 256 0 0");
}

}  // namespace
}  // namespace stagegpt::test
