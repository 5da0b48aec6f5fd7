// Tests of the program stage0_inspect. What it writes is compared with the model's own logits.
#include <cmath>

#include "common/app/trained_model.h"
#include "common/base/json.h"
#include "stage0_serial/naive_backend.h"
#include "tests/checkpoint/small_run.h"

namespace stagegpt::test {
namespace {

class Inspect : public SmallRun {
 protected:
  // Trains on a text, whose characters are those of the tokenizer.
  void train_on(const std::string& text, const std::string& steps) {
    directory.write("text.txt", text);
    expect_success(with(model_flags(), {"--steps", steps, "--run-dir", "run"}));
  }
  ProgramResult inspect(const Arguments& more) const {
    return run_program("stage0_inspect", with({"--threads", "1"}, more), directory.path());
  }
  void expect_refused(const Arguments& more, const std::string& says) const {
    const ProgramResult result = inspect(more);
    expect_failure(result, 2, says);
    EXPECT_EQ(result.output, "");
  }
  std::string cats(int times) const {
    std::string text;
    for (int i = 0; i < times; ++i) text += "the cat sat on the mats.\n";
    return text;
  }
};

TEST_F(Inspect, ShowsWhatTheModelComputes) {
  train_on(cats(100), "60");
  const ProgramResult result =
      inspect({"--model", "run", "--prompt", "the cat sat", "--json", "-", "--top-k", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json found = nlohmann::json::parse(result.output);

  const auto backend = make_naive_backend();
  const TrainedModel trained = load_trained_model(*backend, in("run"), {}, [](const Gpt2Config&) {});
  const std::vector<std::int32_t> ids = trained.tokenizer->encode("the cat sat");
  const std::int64_t T = std::ssize(ids), V = trained.model->config().vocab_size;
  Tape tape(*backend, Tape::Mode::inference);
  const Tensor logits = trained.model->logits(tape, to_device<std::int32_t>(*backend, {1, T}, ids)).value();
  const std::vector<float> all = to_host<float>(*backend, logits);
  ASSERT_EQ(found["lens"].size(), 2u);
  EXPECT_EQ(found["lens"][1]["after"], "h.0");
  ASSERT_EQ(found["added"].size(), 1u);
  for (const char* branch : {"attention", "mlp"}) EXPECT_GT(found["added"][0][branch], 0.01) << branch;
  double loss = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    EXPECT_EQ(found["tokens"][t]["text"], std::string(1, "the cat sat"[t]));
    const auto row =
        std::span(all).subspan(static_cast<std::size_t>(t * logits.shape()[-1]), static_cast<std::size_t>(V));
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    if (t + 1 < T) {
      const float next = row[static_cast<std::size_t>(ids[static_cast<std::size_t>(t) + 1])];
      loss += (std::log(sum) - static_cast<double>(next)) / static_cast<double>(T - 1);
    }
    const nlohmann::json& top = found["lens"][1]["positions"][t]["top"];
    ASSERT_EQ(top.size(), 3u);
    EXPECT_EQ(top[0]["id"], std::ranges::max_element(row) - row.begin());
    for (const nlohmann::json& token : top) {
      EXPECT_NEAR(token["probability"], std::exp(row[token["id"].get<std::size_t>()]) / sum, 1e-5);
      EXPECT_EQ(token["text"], trained.tokenizer->decode(std::vector{token["id"].get<std::int32_t>()}));
    }
    for (const nlohmann::json& head : found["attention"][0]) {
      ASSERT_EQ(head["rows"][t].size(), static_cast<std::size_t>(t) + 1);
      double parts = 0;
      for (const double part : head["rows"][t]) parts += part;
      EXPECT_NEAR(parts, 1, 1e-5);
    }
  }
  EXPECT_NEAR(found["loss"], loss, 1e-5);
}

// Of a checkpoint the page says how far it is trained.
TEST_F(Inspect, SaysStepAndLosses) {
  train_on(cats(100), "4");
  const ProgramResult result =
      inspect({"--model", "run", "--prompt", "the cat sat", "--json", "out.json", "--out", "page.html"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json found = nlohmann::json::parse(read_bytes(in("out.json"))),
                       state = nlohmann::json::parse(read_bytes(in("run/latest/trainer_state.json")));
  EXPECT_EQ(found["step"], 4);
  EXPECT_EQ(found["validation_loss"], state["validation_loss"]);
  const std::string page = read_bytes(in("page.html"));
  EXPECT_NE(page.find("<dt>steps</dt><dd>4</dd>"), std::string::npos);
  char losses[160];
  std::snprintf(losses, sizeof losses,
                "<dt>validation loss</dt><dd>%.3f nats per token</dd></div>\n<div><dt>loss of this text</dt>"
                "<dd>%.3f nats per token</dd>",
                state["validation_loss"].get<double>(), found["loss"].get<double>());
  EXPECT_NE(page.find(losses), std::string::npos) << losses;
  EXPECT_NE(page.find("Logits have 128 columns: the 13 tokens of the vocabulary, and padding"),
            std::string::npos);
  // A model of another program has no steps.
  std::filesystem::create_directory(in("other"));
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
    std::filesystem::copy_file(in("run/latest") / file, in("other") / file);
  directory.write("other/trainer_state.json",
                  "{\"global_step\": 5}");  // as the Trainer of transformers writes
  const ProgramResult other = inspect(words("--model other --prompt t --json -"));
  ASSERT_EQ(other.exit_code, 0) << other.errors;
  const nlohmann::json alone = nlohmann::json::parse(other.output);
  for (const char* field : {"step", "validation_loss", "loss"}) EXPECT_TRUE(alone[field].is_null()) << field;
}

// A text of markup, of characters of several bytes, and of white space ends no element of the page.
TEST_F(Inspect, PageShowsAnyTextSafely) {
  const std::vector<std::string> characters = {"<",
                                               "/",
                                               "s",
                                               "c",
                                               "r",
                                               "i",
                                               "p",
                                               "t",
                                               ">",
                                               "&",
                                               "\"",
                                               "'",
                                               "\n",
                                               "\t",
                                               "\xe6\x97\xa5",
                                               "\xf0\x9f\x99\x82"};
  std::string hostile;
  for (const std::string& character : characters) hostile += character;
  train_on(cats(20) + hostile + cats(20), "1");
  std::filesystem::copy_file(in("run") / "tokenizer.json", in("other.json"));
  const ProgramResult result = inspect({"--model", "run", "--prompt", hostile, "--out", "page.html", "--json",
                                        "out.json", "--tokenizer-path", "other.json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(result.errors.starts_with("page: page.html, ")) << result.errors;
  const std::string page = read_bytes(in("page.html"));
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size(), end = page.find("</script>", at);
  const nlohmann::json data = nlohmann::json::parse(page.substr(at, end - at)),
                       json = nlohmann::json::parse(read_bytes(in("out.json")));
  EXPECT_EQ(data["tokens"], characters);
  ASSERT_EQ(json["tokens"].size(), characters.size());
  for (std::size_t t = 0; t < characters.size(); ++t) EXPECT_EQ(json["tokens"][t]["text"], characters[t]);
  // The first token attends to itself alone: a byte of 255, in base64 '/' and then one of these.
  const std::string attention = data["attention"];
  EXPECT_EQ(attention[0], '/');
  EXPECT_NE(std::string("wxyz0123456789+/").find(attention[1]), std::string::npos) << attention[1];
  EXPECT_EQ(page.substr(at, end - at).find_first_of("<>&"), std::string::npos);
  for (const char* outside : {"src=", "href=", "http:", "https:", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

// The numbers of the layers are those of the run, whichever of its names the model has. A layer that does not
// learn is seen in them.
TEST_F(Inspect, ShowsTheLayersOfTheRun) {
  directory.write("text.txt", cats(100));
  expect_success(with(model_flags(), words("--steps 7 --run-dir run --watch-layers 3 --freeze h.0.*")));
  const auto history = [&](const std::string& model) {
    const ProgramResult result = expect_done(inspect({"--model", model, "--prompt", "the", "--json", "-"}));
    return nlohmann::json::parse(result.output)["run"];
  };
  const nlohmann::json run = history("run");
  EXPECT_EQ(run["steps"], (std::vector{3, 6}));
  EXPECT_EQ(run["layers"], (std::vector<std::string>{"wte", "wpe", "h.0", "ln_f"}));
  EXPECT_EQ(run["update_ratio"][2], (std::vector{0, 0}));
  EXPECT_GT(run["update_ratio"][0][1], 0);
  EXPECT_TRUE(run["rms"][0][0].is_null());
  const double logged = metrics("run")[5]["layers"][0]["grad_norm"];
  EXPECT_NEAR(run["grad_norm"][0][1], logged, 1e-4 * logged);
  EXPECT_EQ(history("run/latest"), run);
  std::filesystem::copy(in("run/latest/"), in("alone"));
  EXPECT_TRUE(history("alone").is_null());
}

TEST_F(Inspect, RefusesWhatItCannotShow) {
  train_on(cats(20), "1");
  const Arguments run = {"--model", "run"};
  expect_refused({"--prompt", "the", "--out", "page.html"}, "--model is missing");
  expect_refused(with(run, {"--out", "page.html"}), "--prompt is missing");
  expect_refused(with(run, {"--prompt", "the"}), "--out or --json is missing");
  expect_refused(with(run, words("--prompt the --out a --json a")), "--json: expected another file");
  expect_refused(with(run, {"--prompt", "the", "--out", "nowhere/a.html"}), "--out: ");
  expect_refused(with(run, {"--prompt", "the cat sat on the", "--json", "-"}),
                 "--prompt: expected at most 16 tokens, got 18; this is the model's context");
  directory.write("notes.html", "my notes");
  expect_refused(with(run, {"--prompt", "the", "--out", "notes.html"}), "is not an inspection");
  EXPECT_EQ(read_bytes(in("notes.html")), "my notes");
}

}  // namespace
}  // namespace stagegpt::test
