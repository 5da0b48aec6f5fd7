// The algorithms of a library's matrix products, chosen by time: a file that stage2_bench --gpu-matmul-tune
// writes, and that other programs read, so that they use the same algorithms and get the same bits. The file
// is JSON; docs/file_formats.md describes it.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace stagegpt::gpu {

// What an algorithm is valid for: the version of the library that it belongs to, and the device on which it
// was the fastest.
struct PlanOrigin {
  std::string device;   // "NVIDIA H100 80GB HBM3"
  std::string library;  // "cuBLASLt 120805"

  bool operator==(const PlanOrigin&) const = default;
};

class PlanCache {
 public:
  explicit PlanCache(PlanOrigin origin = {}) : origin_(std::move(origin)) {}
  // Reads the text of a file. Throws UserError if it is not what text() writes.
  static PlanCache parse(std::string_view text);
  // The text of the file, the same for the same plans in whatever order they were set.
  std::string text() const;

  const PlanOrigin& origin() const { return origin_; }
  // The algorithm of a product (the text of its PlanKey), or null. How the library writes an algorithm is its
  // own affair.
  const std::string* find(const std::string& product) const;
  void set(const std::string& product, std::string algorithm);
  std::size_t size() const { return plans_.size(); }

 private:
  PlanOrigin origin_;
  std::map<std::string, std::string> plans_;
};

// The plans that a program uses. With `tune`, a product without a plan is timed with several algorithms, and
// the fastest is added.
struct GemmPlans {
  PlanCache cache;
  bool tune = false;
};

}  // namespace stagegpt::gpu
