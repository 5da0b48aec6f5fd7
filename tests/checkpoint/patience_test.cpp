// --patience: a run ends when its validation gets worse, and its best weights are saved.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/json.h"
#include "common/checkpoint/trainer_state.h"
#include "common/random/philox.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

TEST(BestValidationTest, CountsWhatIsNotBetter) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::optional<BestValidation> best;
  const auto add = [&](std::int64_t step, double loss, std::int64_t tokens = 64) {
    return *(best = after_validation(best, step, loss, tokens));
  };
  EXPECT_EQ(add(5, 2.0), (BestValidation{2.0, 64, 5, 0}));
  EXPECT_EQ(add(10, 1.5), (BestValidation{1.5, 64, 10, 0}));
  EXPECT_EQ(add(15, 1.5), (BestValidation{1.5, 64, 10, 1}));
  EXPECT_EQ(add(20, kNan), (BestValidation{1.5, 64, 10, 2}));
  EXPECT_EQ(add(25, 1.4), (BestValidation{1.4, 64, 25, 0}));
  EXPECT_EQ(add(30, 1.6, 128), (BestValidation{1.6, 128, 30, 0}));  // not over the same tokens
  best.reset();
  add(5, kNan);
  EXPECT_EQ(add(10, 3.0), (BestValidation{3.0, 64, 10, 0}));
}

// Random letters, of which only those of the training part can be learnt, by heart.
class Patience : public SmallRun {
 protected:
  Patience() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + random_word({7, 0, 0}, i) % 8);
    directory.write("text.txt", text);
  }
  static Arguments flags(const std::string& run, const Arguments& more = {}) {
    return with(model_flags(),
                with({"--steps", "300", "--eval-every", "5", "--checkpoint-every", "7", "--keep-last", "2",
                      "--learning-rate", "0.01", "--val-fraction", "0.2", "--run-dir", run},
                     more));
  }
  // The validations of a run, with the step of each.
  std::vector<std::pair<int, double>> validations(const std::string& run) const {
    std::vector<std::pair<int, double>> all;
    for (const auto& line : metrics(run)) {
      if (line.contains("validation_loss")) all.emplace_back(line["step"], line["validation_loss"]);
    }
    return all;
  }
};

TEST_F(Patience, EndsARunThatGetsWorse) {
  const ProgramResult result = train(flags("run", {"--patience", "3", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto all = validations("run");
  const auto best = std::ranges::min_element(all, {}, &std::pair<int, double>::second);
  ASSERT_EQ(all.end() - best, 4) << result.errors;  // the best, and three that are not better
  EXPECT_LT(all.back().first, 300);
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(all.back().first));
  EXPECT_TRUE(metrics("run").back().contains("validation_loss"));
  double lowest = all.front().second;
  int worse = 0;
  for (auto one = all.begin() + 1; one != all.end() - 1; ++one) {
    worse = one->second < lowest ? 0 : worse + 1;
    lowest = std::min(lowest, one->second);
    EXPECT_LT(worse, 3) << "it should have ended after step " << one->first;
  }

  const std::string of_best = std::to_string(best->first);
  EXPECT_EQ(fs::canonical(in("run/best")).filename(),
            "step_" + std::string(8 - of_best.size(), '0') + of_best);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["stopped_early"], true);
  EXPECT_EQ(json["steps"], all.back().first);
  const std::string said = concat("stopped after step ", all.back().first,
                                  " of 300: the last 3 validations were not better than that "
                                  "after step ",
                                  best->first, ", ");
  expect_said(result, said);
  EXPECT_EQ(result.errors.find("--stop-after"), std::string::npos) << result.errors;
}

TEST_F(Patience, IsTheSameWhenARunIsResumed) {
  expect_success(flags("whole", {"--patience", "3"}));
  const int last = validations("whole").back().first;
  for (const int stop : {last - 6, last - 1}) {  // after one and two validations that are not better
    const std::string run = "run" + std::to_string(stop);
    expect_success(flags(run, {"--patience", "3", "--stop-after", std::to_string(stop)}));
    expect_success({"--resume", run});
    EXPECT_EQ(hash_of(run + "/latest"), hash_of("whole/latest")) << stop;
    EXPECT_EQ(metrics(run), metrics("whole")) << stop;
  }
}

TEST_F(Patience, ThatIsUsedUpEndsAResumedRunAtOnce) {
  expect_success(flags("run", {"--patience", "3"}));
  const std::string hash = hash_of("run/latest");
  const std::size_t count = validations("run").size();
  std::size_t steps = metrics("run").size();
  const ProgramResult again = train({"--resume", "run", "--learning-rate", "0.02"});
  EXPECT_EQ(again.exit_code, 0);
  expect_said(again, concat("run: run has stopped after step ", steps,
                            ": its last 3 validations were not better than the best; to continue it, "
                            "give more --patience, or 0\nnothing is trained or saved\n"));
  EXPECT_EQ(again.errors.find("changes"), std::string::npos) << again.errors;
  EXPECT_EQ(hash_of("run/latest"), hash);
  expect_success({"--resume", "run", "--patience", "4"});
  EXPECT_EQ(validations("run").size(), count + 1);
  steps = metrics("run").size();
  expect_success({"--resume", "run", "--patience", "0", "--stop-after", std::to_string(steps + 9)});
  EXPECT_EQ(metrics("run").size(), steps + 9);
}

TEST_F(Patience, NeedsAValidation) {
  Arguments arguments = with(model_flags(), {"--patience", "1", "--val-fraction", "0", "--run-dir", "run"});
  expect_refused(arguments, "--patience: there is no validation to compare, with --val-fraction 0\n");
  EXPECT_FALSE(fs::exists(in("run")));
}

}  // namespace
}  // namespace stagegpt::test
