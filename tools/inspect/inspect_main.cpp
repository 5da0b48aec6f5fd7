// stageN_inspect: what a model computes for a text, as a page and as JSON.
#include <iostream>

#include "common/app/command_line.h"
#include "common/app/stage.h"
#include "common/app/trained_model.h"
#include "common/base/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_file.h"
#include "common/comm/agreement.h"
#include "common/io/file.h"
#include "tools/inspect/inspection_json.h"
#include "tools/inspect/layer_history.h"
#include "tools/inspect/page.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

bool is_same_path(const fs::path& a, const fs::path& b) {
  std::error_code ignored;  // where a path cannot be followed, the file cannot be opened either
  return a == b || fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

struct InspectFlags {
  std::string model, prompt;
  std::optional<std::string> tokenizer_path, out, json;
  std::int64_t top_k = 5;
  bool no_fused = false, ignore_memory = false;

  void add(CommandLine& command_line) {
    command_line.group("Model");
    command_line.text("--model", model, kModelFormats);
    command_line.text("--tokenizer-path", tokenizer_path, "tokenizer (default: the directory's)");
    command_line.group("Text");
    command_line.free_text("--prompt", prompt, "text that the model reads");
    command_line.group("Output");
    command_line.text("--out", out, "HTML page to write, which needs no other file and no network");
    command_line.text("--json", json, "file for the same numbers as JSON (-: standard output)");
    command_line.integer("--top-k", top_k, 1, 20, "tokens of each prediction of the logit lens");
    command_line.group("Run");
    command_line.toggle("--no-fused", no_fused, "run fused ops as sequences of primitive ones");
    add_ignore_memory(command_line, ignore_memory);
  }
  void check(Stage& stage) const {
    require_model_path(model, "--model");
    if (prompt.empty()) user_error("--prompt is missing: expected a text that the model reads");
    if (!out && !json)
      user_error("--out or --json is missing: expected the path of a page or of a JSON file");
    if (out && json && is_same_path(*out, *json))
      user_error("--json: expected another file than --out, ", *out);
    if (!stage.group().is_root()) return;
    if (out) require_result_file(*out, "--out", "an inspection", kInspectionMark);
    if (json && *json != "-") require_result_file(*json, "--json", "an inspection", kInspectionMark);
  }
};

// Throws UserError for a text that has too many tokens.
std::vector<std::int32_t> encode(const InspectFlags& flags, const TrainedModel& trained) {
  std::vector<std::int32_t> ids = naming("--prompt", [&] { return trained.tokenizer->encode(flags.prompt); });
  const Gpt2Config& config = trained.model->config();
  const std::int64_t most = most_inspected_tokens(config);
  if (std::ssize(ids) > most) {
    user_error("--prompt: expected at most ", most, " tokens, got ", ids.size(), "; ",
               most == config.block_size ? "this is the model's context"
                                         : concat("with ", config.n_layer, " layers of ", config.n_head,
                                                  " heads, a page has no room for more"));
  }
  return ids;
}

// The state of the run at this checkpoint; none for another model, also if it has a file of that name.
std::optional<TrainerState> state_of(const fs::path& model) {
  try {
    return read_trainer_state(model);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

void write(const InspectFlags& flags, const Findings& findings, const Tokenizer& tokenizer) {
  if (flags.json) {
    const std::string text = json_text(to_json(findings, tokenizer), -1);
    if (*flags.json == "-") {
      std::cout << text;
      flush_output();
    } else {
      replace_file(*flags.json, text);
    }
  }
  if (flags.out) {
    const std::string page = inspection_page(findings, tokenizer);
    replace_file(*flags.out, page);
    std::cerr << "page: " << fs::path(*flags.out).string() << ", " << (page.size() + 999) / 1000 << " kB\n";
  }
}

int inspect_main(Stage& stage, int argc, char** argv) {
  InspectFlags flags;
  CommandLine command_line(argv[0],
                           "Look inside a model while it reads a text: attention of each head, and what each "
                           "layer would predict.",
                           stage.number(), stage_flags());
  command_line.version(built_version());
  flags.add(command_line);
  stage.add_flags(command_line);
  if (!parse_flags(stage, command_line, argc, argv, [&] { flags.check(stage); })) return 0;
  const Machine& machine = stage.start(/*timeline=*/nullptr);
  machine.backend->set_fused(!flags.no_fused);
  const auto fits = [&](const Gpt2Config& config) {
    if (flags.ignore_memory) return;
    const EvaluationBatch text{.B = 1, .T = most_inspected_tokens(config), .rows = "texts"};
    require_evaluation_memory(config, text, machine.activations, DType::f32, machine.memory, free_memory());
  };
  // Found once: the run may write a newer checkpoint meanwhile.
  const fs::path model = directory_of_model(flags.model).value_or(flags.model);
  const TrainedModel trained = load_shared_model(stage.group(), *machine.backend, model, flags.tokenizer_path,
                                                 fits, machine.activations);
  std::vector<std::int32_t> ids;
  agree(stage.group(), [&] { ids = encode(flags, trained); });
  const Gpt2Config& config = trained.model->config();
  Findings findings{
      .model = {.name = flags.model,
                .machine = machine.description,
                .parameters = trained.model->parameters().table().numel(),
                .config = config,
                .step = {},
                .validation_loss = {}},
      .inspection = inspect(*machine.backend, *trained.model, ids, static_cast<int>(flags.top_k)),
      .tape = trace_tape(config, /*B=*/1, std::ssize(ids)),
      .run = {}};
  on_root(stage.group(), [&] {
    if (const auto state = state_of(model)) {
      findings.model.step = state->step;
      findings.model.validation_loss = state->validation_loss;
    }
    if (const auto metrics = metrics_of(flags.model)) findings.run = layer_history(*metrics);
    write(flags, findings, *trained.tokenizer);
  });
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_stage(argc, argv, stagegpt::make_stage, stagegpt::inspect_main);
}
