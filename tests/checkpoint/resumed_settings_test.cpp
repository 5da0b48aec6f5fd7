// Settings of a resumed run: which are kept, which must not change, and messages about changes.
#include <gtest/gtest.h>

#include "common/app/configuration.h"
#include "common/app/resume.h"
#include "common/base/json.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

std::string refusal_to_resume(const Json& run, const Json& now) {
  return refusal([&] { refuse_changes(run, now); });
}

std::string announced(const Json& run, const Json& now, const std::set<std::string>& stage_keys = {}) {
  testing::internal::CaptureStderr();
  announce_changes(run, now, stage_keys);
  return testing::internal::GetCapturedStderr();
}

TEST(ResumedSettings, OfTheModelAndTheDataMayNotChange) {
  for (const std::string key :
       {"model", "n_layer", "n_head", "n_embd", "block_size", "activation", "tokenizer", "tokenizer_path",
        "vocab_size", "val_fraction", "seed", "parse_special_tokens"}) {
    std::string flag = "--" + key;
    std::ranges::replace(flag, '_', '-');
    EXPECT_EQ(refusal_to_resume({{key, 1}}, {{key, "x"}}),
              flag + ": expected 1, as the run began with, not \"x\"; another value needs a new run");
    EXPECT_EQ(refusal_to_resume({{key, 1}}, {{key, 1}}), "");
    // A run of an older version may lack a key.
    EXPECT_EQ(refusal_to_resume(Json::object(), {{key, 1}}) + refusal_to_resume({{key, 1}}, Json::object()),
              "");
    EXPECT_EQ(refusal_to_resume({{key, nullptr}, {"derived", {{key, 1}}}}, {{key, 1}}), "");
  }
  EXPECT_EQ(refusal_to_resume({{"steps", 1}, {"dropout", 0}}, {{"steps", 2}, {"dropout", 1}}), "");
}

TEST(ResumedSettings, ThatChangeWhatIsLearntAreAnnounced) {
  for (const std::string key : {"batch_size", "grad_accumulation", "learning_rate", "min_lr", "warmup_steps",
                                "lr_schedule", "weight_decay", "beta1", "beta2", "eps", "grad_clip",
                                "dropout", "no_fused", "overfit_batch", "reproducible", "freeze"}) {
    std::string flag = "--" + key;
    std::ranges::replace(flag, '_', '-');
    EXPECT_EQ(announced({{key, 1}}, {{key, "x"}}), "note: " + flag + " changes from 1 to \"x\"\n");
    EXPECT_EQ(announced({{key, 1}}, {{key, 1}}), "");
    EXPECT_EQ(announced(Json::object(), {{key, 1}}) + announced({{key, 1}}, Json::object()), "");
    EXPECT_EQ(announced({{key, nullptr}, {"derived", {{key, 1}}}}, {{key, nullptr}, {"derived", {{key, 2}}}}),
              "note: " + flag + " changes from 1 to 2\n");
  }
  EXPECT_EQ(announced({{"steps", 10}, {"eps", 1}, {"log_interval", 1}},
                      {{"steps", 20}, {"eps", 2}, {"log_interval", 2}}),
            "note: the learning-rate schedule now ends at step 20, not 10; the learning rate of the next "
            "steps changes\n"
            "note: --eps changes from 1 to 2\n");
}

TEST(ResumedSettings, OfAStageAreAnnounced) {
  const Json run = {{"threads", nullptr}, {"comm", "flat"}, {"eval_every", 1}},
             now = {{"threads", 2}, {"device", 1}, {"eval_every", 2}};
  EXPECT_EQ(announced(run, now, {"comm", "device", "threads"}),
            "note: --threads changes from the default to 2\n");
  EXPECT_EQ(announced(run, now), "");
}

TEST(ResumedSettings, ThatWereDerivedAreKept) {
  const Json run = {
      {"a", nullptr}, {"b", nullptr}, {"c", 3}, {"d", nullptr}, {"derived", {{"a", 1}, {"b", 2}}}};
  EXPECT_EQ(kept_values(run, {{"a", nullptr}, {"b", 5}, {"c", nullptr}}), (Json{{"a", 1}}));
  EXPECT_EQ(kept_values(run, Json::object()), (Json{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(kept_values({{"a", 1}}, Json::object()), Json::object());
}

TEST(ResumedSettings, ADerivedFinalRateFollowsAnotherPeak) {
  const Json run = {{"learning_rate", 1}, {"min_lr", nullptr}, {"derived", {{"min_lr", 0.1}}}};
  const Json kept = {{"min_lr", 0.1}};
  EXPECT_EQ(kept_values(run, Json::object()), kept);
  EXPECT_EQ(kept_values(run, {{"learning_rate", nullptr}}), kept);
  EXPECT_EQ(kept_values(run, {{"learning_rate", 1}}), kept);
  EXPECT_EQ(kept_values(run, {{"learning_rate", 2}}), Json::object());
}

TEST(ResumedSettings, ThatAreGoneAreReplacedAndNamed) {
  Json settings = {{"comm", "zero2"},         {"comm_algorithm", "hierarchical"}, {"ranks_per_node", 2},
                   {"checkpoint_writers", 3}, {"checkpoint_async", true},         {"steps", 4}};
  EXPECT_EQ(replace_removed(settings),
            (std::vector<std::string>{
                "--comm zero2 was removed; zero1-overlapped takes its place",
                "--comm-algorithm hierarchical was removed; mpi takes its place",
                "--ranks-per-node was removed: --comm-algorithm mpi knows which ranks share a node",
                "--checkpoint-writers was removed: one rank writes a checkpoint",
                "--checkpoint-async was removed: a checkpoint is complete before the next step begins"}));
  EXPECT_EQ(settings, (Json{{"comm", "zero1-overlapped"}, {"comm_algorithm", "mpi"}, {"steps", 4}}));
}

TEST(ResumedSettings, ThatMeanWhatIsDoneNowAreLeftOut) {
  Json settings = {{"comm", "zero1"},         {"comm_algorithm", "ring"},  {"ranks_per_node", 0},
                   {"checkpoint_writers", 1}, {"checkpoint_async", false}, {"steps", 4}};
  EXPECT_TRUE(replace_removed(settings).empty());
  EXPECT_EQ(settings, (Json{{"comm", "zero1"}, {"comm_algorithm", "ring"}, {"steps", 4}}));
  Json no_object = Json::array();
  EXPECT_TRUE(replace_removed(no_object).empty());
}

}  // namespace
}  // namespace stagegpt::test
