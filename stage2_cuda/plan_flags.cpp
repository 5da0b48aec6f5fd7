#include "stage2_cuda/plan_flags.h"

#include <filesystem>
#include <iostream>

#include "common/comm/agreement.h"
#include "common/io/file.h"

namespace stagegpt::gpu {
namespace {

std::string name_of(const PlanOrigin& origin) { return concat(origin.device, " with ", origin.library); }

}  // namespace

void PlanFlags::add(CommandLine& command_line) {
  command_line.text(
      kFlag, file_,
      "file of algorithms for matrix products, written by stage2_bench --gpu-matmul-tune; a run "
      "keeps a copy (default: those that the library proposes)");
}

void PlanFlags::add_tuning(CommandLine& command_line) {
  command_line.toggle("--gpu-matmul-tune", tune_,
                      "time the library's algorithms for each matrix product that --gpu-matmul-plans lacks, "
                      "and add the fastest to that file");
}

std::string PlanFlags::read() const {
  std::error_code ignored;
  if (tune_ && !std::filesystem::exists(*file_, ignored)) return "";
  const MappedFile file(*file_, kFlag);
  naming(concat(kFlag, ": ", *file_), [&] { PlanCache::parse(file.text()); });
  return std::string(file.text());
}

std::shared_ptr<GemmPlans> PlanFlags::open(RankGroup& group, const PlanOrigin& here) {
  if (!file_) {
    if (tune_) throw AgreedUserError(concat("--gpu-matmul-tune: needs ", kFlag, ", the file to write"));
    return nullptr;
  }
  text_ = text_from_root(group, [&] { return read(); });
  PlanCache cache = text_.empty() ? PlanCache(here) : PlanCache::parse(text_);
  const bool of_others = any(group, cache.origin() != here);
  if (of_others && tune_) {
    throw AgreedUserError(concat("--gpu-matmul-tune: ", *file_, " is for ", name_of(cache.origin()),
                                 ", not for ", name_of(here), "; name another file"));
  }
  if (of_others) {
    if (group.is_root()) {
      std::cerr << "note: " << kFlag << ": " << *file_ << " is for " << name_of(cache.origin())
                << (cache.origin() != here ? ", not for " + name_of(here) : ", which not all ranks have")
                << "; it is not used, and results may have other bits\n";
    }
    return nullptr;
  }
  plans_ = std::make_shared<GemmPlans>(GemmPlans{std::move(cache), tune_});
  return plans_;
}

void PlanFlags::write() const {
  if (!tune_ || !plans_) return;
  replace_file(*file_, plans_->cache.text());
  std::cerr << "plans: " << plans_->cache.size() << " matrix products in " << *file_ << '\n';
}

std::map<std::string, std::string> PlanFlags::kept_files() const {
  if (text_.empty()) return {};
  return {{kNameInRun, text_}};
}

}  // namespace stagegpt::gpu
