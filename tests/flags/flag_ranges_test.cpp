// The valid values of each flag, as listed in the error for the value "?". Also the defaults of training.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/app/stage.h"
#include "common/app/train_flags.h"
#include "common/model/presets.h"
#include "stage0_serial/cpu_flags.h"
#include "tests/support/parse.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

// Expects that the program refuses the value "?" of each flag. Each line of `table` has a flag, without its
// dashes, and what the program says it expected.
void expect_refusals(const std::string& program, const std::string& table) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::size_t end = line.find("  ");
    const std::string flag = "--" + line.substr(0, end);
    const ProgramResult result = run_program(program, {flag, "?"}, ".");
    EXPECT_EQ(result.exit_code, 2) << flag;
    EXPECT_EQ(result.errors, concat(program, ": ", flag, ": expected ", line.substr(end + 2), ", not '?'\n"));
  }
}

TEST(FlagRanges, OfGenerate) {
  expect_refusals("stage0_generate", R"(
weights  one of f32, bf16, int8
max-new-tokens  a whole number from 1 to 1099511627776
num-samples  a whole number from 1 to 1048576
temperature  a number from 0 to 1000
top-k  a whole number from 0 to 1073741824
top-p  a number above 0 and up to 1
repetition-penalty  a number above 0 and up to 1000
seed  a whole number from 0 to 9223372036854775807
threads  a whole number from 1 to 1024
cpu-kernels  one of vectorised, naive
cpu-matmul  one of naive, tiled, packed, packed-bf16, blas
precision  one of f32, tf32, bf16
)");
}

// The limits of a range are valid values. The error is then that --model is missing.
TEST(FlagRanges, OfGenerateHaveEndsThatAreTaken) {
  const auto says = [](const char* flag, const char* value) {
    return run_program("stage0_generate", {flag, value}, ".").errors;
  };
  const std::string taken =
      "stage0_generate: --model is missing: expected a run, a checkpoint, any Hugging Face GPT-2 directory, "
      "or llm.c's model file\n";
  EXPECT_EQ(says("--temperature", "0"), taken);
  EXPECT_EQ(says("--temperature", "1000"), taken);
  EXPECT_EQ(says("--repetition-penalty", "1000"), taken);
  EXPECT_EQ(says("--top-p", "1"), taken);
  const std::pair<const char*, const char*> beyond[] = {
      {"--temperature", "-1"},          {"--temperature", "1001"}, {"--repetition-penalty", "0"},
      {"--repetition-penalty", "1001"}, {"--top-p", "0"},          {"--top-p", "1.01"}};
  for (const auto& [flag, value] : beyond) EXPECT_NE(says(flag, value), taken) << flag << ' ' << value;
}

TEST(FlagRanges, OfVerify) {
  expect_refusals("stage0_verify", R"(
steps  a whole number from 0 to 1000000
learning-rate  a number above 0
weight-decay  a number of at least 0
beta1  a number from 0 to below 1
beta2  a number from 0 to below 1
eps  a number above 0
grad-clip  a number of at least 0
)");
}

TEST(FlagRanges, OfBench) {
  expect_refusals("stage0_bench", R"(
vocab-size  a whole number from 1 to 16777216
batch-size  a whole number from 1 to 1048576
grad-accumulation  a whole number from 1 to 1048576
seq-len  a whole number from 1 to 1048576
steps  a whole number from 1 to 1000000
warmup  a whole number from 0 to 1000000
weights  one of f32, bf16, int8
recompute  one of none, gelu, block
peak-tflops  a number above 0
peak-bandwidth  a number above 0
)");
}

TEST(FlagRanges, OfPrepareDataAndConvertCheckpoint) {
  expect_refusals("prepare_data", R"(
tokenizer  one of char, word, bpe, gpt2
vocab-size  a whole number from 1 to 16777216
val-fraction  a number from 0 to below 1
shard-tokens  a whole number from 1 to 2147483647
threads  a whole number from 1 to 1024
)");
  expect_refusals("convert_checkpoint", "precision  one of f32, bf16");
}

// The settings of a training, from --config or the command line.
class TrainingSettings : public testing::Test {
 protected:
  TrainingSettings() : command_line_("stage0_train", "", 0) {
    flags_.add(command_line_);
    machine_.add(command_line_, "");
  }

  TrainFlags flags_;
  CpuFlags machine_;
  CommandLine command_line_;
};

TEST_F(TrainingSettings, HaveRanges) {
  std::istringstream expected(R"(--stop-after: expected a whole number from 1 to 1000000000, not '?'
--trace-steps: expected a whole number from 0 to 1000000000, not '?'
--tokenizer: expected one of char, word, bpe, gpt2, not '?'
--vocab-size: expected a whole number from 1 to 16777216, not '?'
--val-fraction: expected a number from 0 to below 1, not '?'
--n-layer: expected a whole number from 1 to 1000, not '?'
--n-head: expected a whole number from 1 to 65536, not '?'
--n-embd: expected a whole number from 1 to 65536, not '?'
--block-size: expected a whole number from 1 to 1048576, not '?'
--activation: expected one of gelu_new, gelu, relu, not '?'
--dropout: expected a number from 0 to below 1, not '?'
--batch-size: expected a whole number from 1 to 1048576, not '?'
--grad-accumulation: expected a whole number from 1 to 1048576, not '?'
--steps: expected a whole number from 1 to 1000000000, not '?'
--learning-rate: expected a number above 0, not '?'
--min-lr: expected a number of at least 0, not '?'
--warmup-steps: expected a whole number from 0 to 1000000000, not '?'
--lr-schedule: expected one of cosine, linear, constant, wsd, not '?'
--decay-steps: expected a whole number from 1 to 1000000000, not '?'
--weight-decay: expected a number of at least 0, not '?'
--beta1: expected a number from 0 to below 1, not '?'
--beta2: expected a number from 0 to below 1, not '?'
--eps: expected a number above 0, not '?'
--grad-clip: expected a number of at least 0, not '?'
--recompute: expected one of none, gelu, block, not '?'
--non-finite: expected one of stop, skip, not '?'
--seed: expected a whole number from 0 to 9223372036854775807, not '?'
--eval-every: expected a whole number from 0 to 1000000000, not '?'
--eval-tokens: expected a whole number from 0 to 1000000000000000, not '?'
--checkpoint-every: expected a whole number from 1 to 1000000000, not '?'
--keep-last: expected a whole number from 2 to 1000000000, not '?'
--keep-every: expected a whole number from 0 to 1000000000, not '?'
--sample-every: expected a whole number from 0 to 1000000000, not '?'
--watch-layers: expected a whole number from 0 to 1000000000, not '?'
--max-new-tokens: expected a whole number from 0 to 1000000, not '?'
--threads: expected a whole number from 1 to 1024, not '?'
--cpu-kernels: expected one of vectorised, naive, not '?'
--cpu-matmul: expected one of naive, tiled, packed, packed-bf16, blas, not '?'
--precision: expected one of f32, tf32, bf16, not '?'
)");
  for (std::string line; std::getline(expected, line);) {
    const std::string flag = line.substr(0, line.find(':'));
    EXPECT_EQ(refusal([&] { parse(command_line_, {flag, "?"}); }), line);
  }
}

TEST_F(TrainingSettings, HaveDefaults) {
  EXPECT_EQ(command_line_.settings().dump(2), R"({
  "data": "data/dummy.txt",
  "tokenizer": null,
  "tokenizer_path": null,
  "vocab_size": null,
  "parse_special_tokens": false,
  "any_bytes": false,
  "val_fraction": 0.1,
  "model": "nano",
  "n_layer": null,
  "n_head": null,
  "n_embd": null,
  "block_size": null,
  "activation": null,
  "dropout": 0.0,
  "batch_size": 8,
  "grad_accumulation": 1,
  "steps": 2000,
  "learning_rate": null,
  "min_lr": null,
  "warmup_steps": null,
  "lr_schedule": "cosine",
  "decay_steps": null,
  "weight_decay": 0.1,
  "beta1": 0.9,
  "beta2": 0.95,
  "eps": 1e-08,
  "grad_clip": 1.0,
  "freeze": "",
  "overfit_batch": false,
  "reproducible": false,
  "sub_batches": 8,
  "recompute": "none",
  "non_finite": "stop",
  "seed": 1337,
  "run_dir": null,
  "eval_every": 100,
  "eval_tokens": null,
  "eval_task": "",
  "patience": 0,
  "checkpoint_every": 1000,
  "keep_last": 2,
  "keep_every": 0,
  "sample_every": 0,
  "watch_layers": 0,
  "max_new_tokens": 500,
  "no_fused": false,
  "threads": null,
  "cpu_kernels": "vectorised",
  "cpu_matmul": "packed",
  "precision": "f32"
})");
  for (const char* flag : {"dry_run", "print_config", "ignore_memory", "json"}) {
    EXPECT_FALSE(command_line_.settings().contains(flag)) << flag;  // belongs to one call only
  }
  flags_.resolve();
  const TrainOptions options = flags_.options();
  EXPECT_FALSE(options.dry_run || flags_.print_config || options.ignore_memory || options.json ||
               flags_.resume);
}

TEST_F(TrainingSettings, AreThoseOfARun) {
  flags_.resolve();
  const TrainingRunConfig run = flags_.run();
  EXPECT_EQ(run.last_step, 2000);
  EXPECT_EQ(run.eval_every, 100);
  EXPECT_EQ(run.eval_tokens, 240 * 128);  // 20 validations share a tenth of 2000 · 8 · 3 passes
  EXPECT_EQ(run.checkpoint_every, 1000);
  EXPECT_EQ(run.sample_every, 0);
  EXPECT_EQ(run.trace_steps, 0);
  EXPECT_EQ(run.keep.last, 2);
  EXPECT_EQ(run.keep.every, 0);
  EXPECT_EQ(run.non_finite, NonFinite::stop);
  EXPECT_EQ(run.trainer.seed, 1337u);
  EXPECT_EQ(run.trainer.schedule.kind, LrSchedule::Kind::cosine);
  EXPECT_EQ(run.trainer.schedule.learning_rate, 0.003);
  EXPECT_EQ(run.trainer.schedule.min_lr, 0.003 / 10);
  EXPECT_EQ(run.trainer.schedule.warmup_steps, 100);
  EXPECT_EQ(run.trainer.schedule.steps, 2000);
}

TEST_F(TrainingSettings, ChooseWhatIsRecomputed) {
  flags_.resolve();
  EXPECT_EQ(flags_.run().trainer.recompute, Recompute::none);
  ASSERT_TRUE(parse(command_line_, {"--recompute", "block"}));
  EXPECT_EQ(flags_.run().trainer.recompute, Recompute::block);
}

TEST_F(TrainingSettings, NameTheModelByWhatDiffersFromItsPreset) {
  flags_.resolve();
  EXPECT_EQ(flags_.model.label(), "nano");
  ASSERT_TRUE(
      parse(command_line_, words("--n-layer 1 --n-head 2 --n-embd 64 --block-size 16 --activation relu")));
  flags_.resolve();
  EXPECT_EQ(flags_.model.label(), "nano with n_layer 1, n_head 2, n_embd 64, block_size 16, activation relu");
}

// If a flag is unknown at this stage, the error names the stages that have it.
TEST(CommandLineCalls, OfOtherStagesAreNamed) {
  std::string text = "\n";
  for (const std::string flag :
       {"--cpu-matmul", "--threads", "--device", "--gpu-matmul", "--gpu-matmul-plans", "--gpu-matmul-tune",
        "--gpu-attention", "--gpu-graph", "--ladder", "--comm", "--comm-algorithm", "--watchdog-seconds",
        "--transport", "--share-gpu"}) {
    for (const int stage : {0, 1, 2, 3}) {
      CommandLine command_line("train", "", stage, stage_flags());
      const std::string what = refusal([&] { parse(command_line, {flag}); });
      if (!what.starts_with("unknown flag")) text += what + '\n';
    }
  }
  EXPECT_EQ(text, R"(
--cpu-matmul: stage 2 has no use for it; it belongs to stages 0 and 1
--cpu-matmul: stage 3 has no use for it; it belongs to stages 0 and 1
--threads: stage 2 has no use for it; it belongs to stages 0 and 1
--threads: stage 3 has no use for it; it belongs to stages 0 and 1
--device: stage 0 has no use for it; it belongs to stages 2 and 3
--device: stage 1 has no use for it; it belongs to stages 2 and 3
--gpu-matmul: stage 0 has no use for it; it belongs to stages 2 and 3
--gpu-matmul: stage 1 has no use for it; it belongs to stages 2 and 3
--gpu-matmul-plans: stage 0 has no use for it; it belongs to stages 2 and 3
--gpu-matmul-plans: stage 1 has no use for it; it belongs to stages 2 and 3
--gpu-matmul-tune: stage 0 has no use for it; it belongs to stage 2
--gpu-matmul-tune: stage 1 has no use for it; it belongs to stage 2
--gpu-matmul-tune: stage 3 has no use for it; it belongs to stage 2
--gpu-attention: stage 0 has no use for it; it belongs to stages 2 and 3
--gpu-attention: stage 1 has no use for it; it belongs to stages 2 and 3
--gpu-graph: stage 0 has no use for it; it belongs to stages 2 and 3
--gpu-graph: stage 1 has no use for it; it belongs to stages 2 and 3
--ladder: stage 0 has no use for it; it belongs to stage 2
--ladder: stage 1 has no use for it; it belongs to stage 2
--ladder: stage 3 has no use for it; it belongs to stage 2
--comm: stage 0 has no use for it; it belongs to stages 1 and 3
--comm: stage 2 has no use for it; it belongs to stages 1 and 3
--comm-algorithm: stage 0 has no use for it; it belongs to stages 1 and 3
--comm-algorithm: stage 2 has no use for it; it belongs to stages 1 and 3
--watchdog-seconds: stage 0 has no use for it; it belongs to stages 1 and 3
--watchdog-seconds: stage 2 has no use for it; it belongs to stages 1 and 3
--transport: stage 0 has no use for it; it belongs to stage 3
--transport: stage 1 has no use for it; it belongs to stage 3
--transport: stage 2 has no use for it; it belongs to stage 3
--share-gpu: stage 0 has no use for it; it belongs to stage 3
--share-gpu: stage 1 has no use for it; it belongs to stage 3
--share-gpu: stage 2 has no use for it; it belongs to stage 3
)");
}

// The emulator's programs have --threads, but the programs for a GPU do not.
TEST(CommandLineCalls, MayHaveAFlagThatIsListedForOtherStagesOnly) {
  constexpr StageFlag kFlags[] = {{"--threads", 0}, {"--comm", 1}};
  const ScratchDirectory directory;
  directory.write("threads.json", R"({"threads": 3})");
  directory.write("comm.json", R"({"comm": "flat"})");
  const auto threads_of = [&](const char* file) {
    std::int64_t threads = 1;
    CommandLine command_line("train", "", 2, kFlags);
    command_line.config_file();
    command_line.integer("--threads", threads, 1, 8, "");
    parse(command_line, {"--config", directory.path() / file});
    return threads;
  };
  EXPECT_EQ(threads_of("threads.json"), 3);
  EXPECT_THROW(threads_of("comm.json"), UserError);
}

// The call consists of the flags that are not settings. Ranks compare it in addition to the settings.
TEST(CommandLineCalls, AreWhatIsNoSetting) {
  TrainFlags flags;
  CommandLine command_line("stage0_train", "", 0);
  flags.add(command_line);
  ASSERT_TRUE(parse(command_line, words("--resume run --json --stop-after 7 --steps 9")));
  std::string text;
  for (const auto& [flag, value] : command_line.call()) text += flag + ": " + value + '\n';
  EXPECT_EQ(
      text,
      "--help: no\n--config: no\n--print-config: no\n--dry-run: no\n--resume: yes run\n--stop-after: yes 7\n"
      "--trace-steps: no\n--profile: no\n--profile-steps: no\n--ignore-memory: no\n--json: yes\n");
  EXPECT_TRUE(command_line.is_given("--steps"));
  EXPECT_FALSE(command_line.is_given("--seed"));
}

// The flags of a training, after a command line.
struct Trained {
  TrainFlags flags;
  CommandLine command_line{"somewhere/stage0_train", "", 0};

  explicit Trained(const std::vector<std::string>& arguments) {
    command_line.version({.number = "7.8.9", .commit = "abc", .build_type = "Release", .compiler = "GNU 12"});
    flags.add(command_line);
    parse(command_line, arguments);
  }
  std::string call(const std::string& flag) const {
    for (const auto& [name, value] : command_line.call()) {
      if (name == flag) return value;
    }
    return "none";
  }
};

TEST(RepeatedFlags, HaveTheirLastValue) {
  const ScratchDirectory directory;
  const std::string first = directory.write("first.json", R"({"seed": 3, "n_layer": 5})"),
                    second = directory.write("second.json", R"({"seed": 4})");
  const Trained trained(words("--steps many --steps=1e2 --tokenizer word --tokenizer char --json --json "
                              "--learning-rate 1 --learning-rate 0.5 --resume a --resume b --stop-after 7 "
                              "--stop-after 8") +
                        std::vector<std::string>{"--config", first, "--config", second});
  const Json settings = trained.command_line.settings();
  EXPECT_EQ(settings["steps"], 100);
  EXPECT_EQ(settings["tokenizer"], "char");
  EXPECT_EQ(settings["learning_rate"], 0.5);
  EXPECT_EQ(settings["seed"], 4);
  EXPECT_NE(settings["n_layer"], 5);
  EXPECT_EQ(trained.call("--json"), "yes");
  EXPECT_EQ(trained.flags.resume, "b");
  EXPECT_EQ(trained.call("--resume"), "yes b");
  EXPECT_EQ(trained.call("--stop-after"), "yes 8");
  EXPECT_EQ(Trained({"--resume", "a", "--resume"}).flags.resume, "");
  EXPECT_THROW(Trained({"--steps", "1", "--steps", "0"}), UserError);
}

TEST(CommandLineCalls, NameTheProgramNotItsPath) {
  testing::internal::CaptureStdout();
  const Trained help({"--help"});
  EXPECT_NE(testing::internal::GetCapturedStdout().find("Usage: stage0_train [OPTIONS]"), std::string::npos);
  testing::internal::CaptureStdout();
  const Trained version({"--steps", "7", "--version"});
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "stage0_train (StageGPT) 7.8.9\ncommit: abc\nbuild:  Release, GNU 12, for any processor\n");
}

TEST(Version, SaysWhatIsNotKnown) {
  EXPECT_EQ(version_text(
                "p", {.number = "1.0.0", .build_type = "Debug", .compiler = "C", .processor = "x86-64-v3"}),
            "p (StageGPT) 1.0.0\ncommit: unknown (built outside of a git repository)\n"
            "build:  Debug, C, -march=x86-64-v3");
  EXPECT_NE(version_text("p", {.commit = "abc", .changed = true}).find("\ncommit: abc +changes\n"),
            std::string::npos);
}

TEST(Errors, HaveExitCodes) {
  EXPECT_EQ(exit_code_of(UserError("")), 2);
  EXPECT_EQ(exit_code_of(std::runtime_error("")), 1);
  EXPECT_EQ(exit_code_of(InternalError("")), 1);
}

// Any error message is printed as one line of at most 1000 characters.
TEST(Errors, AreOneLine) {
  const auto printed = [](const std::string& message) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(stagegpt::run_program("/bin/program", [&]() -> int { throw UserError(message); }), 2);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed("a\nb\tc\x1f \x7f~"), "program: a?b?c? ?~\n");
  EXPECT_EQ(printed(std::string(1000, 'a')), "program: " + std::string(1000, 'a') + '\n');
  EXPECT_EQ(printed(std::string(1001, 'a')), "program: " + std::string(1000, 'a') + "...\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(stagegpt::run_program("program", []() -> int { throw std::bad_alloc(); }), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "program: out of memory; a smaller model, --batch-size or --block-size needs less\n");
  EXPECT_EQ(stagegpt::run_program("program", [] { return 7; }), 7);
}

}  // namespace
}  // namespace stagegpt::test
