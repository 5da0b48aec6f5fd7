// model_probe DIR --prompt TEXT --new-tokens N
//
// Loads a GPT-2 and its tokenizer from a Hugging Face directory, and prints their output for a text as one
// JSON object. scripts/check_hugging_face.py compares it with the output of `transformers`:
//   ids                      the token ids of the prompt
//   logits                   the logits of the last position: vocab_size numbers, with all digits of f32
//   greedy_ids, greedy_text  N tokens of greedy generation
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/app/command_line.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/comm/self_communicator.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/generation/generation.h"
#include "common/model/gpt2.h"
#include "stage0_serial/cpu_backend.h"

namespace stagegpt {
namespace {

// nlohmann::json with float numbers.
using FloatJson =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, float>;

constexpr int kThreads = 2;

std::vector<float> last_logits(Backend& backend, const Gpt2& model, const std::vector<std::int32_t>& ids) {
  const std::int64_t T = std::ssize(ids), padded_V = model.config().padded_vocab_size();
  Tape tape(backend, Tape::Mode::inference);
  const Tensor logits =
      model.logits(tape, to_device<std::int32_t>(backend, {1, T}, ids)).value();  // (1,T,Vp)
  return to_host<float>(backend, logits.slice((T - 1) * padded_V, {model.config().vocab_size}));
}

int probe(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 5 || arguments[1] != "--prompt" || arguments[3] != "--new-tokens") {
    user_error("expected: model_probe DIR --prompt TEXT --new-tokens N");
  }
  const ModelFile file = read_hugging_face(arguments[0], "DIR");
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(arguments[0], "DIR");
  const std::unique_ptr<Backend> backend = make_cpu_backend(kThreads);
  Gpt2 model(*backend, file.config);
  load_weights(*backend, model.parameters(), file.values);

  const std::vector<std::int32_t> ids = tokenizer->encode(arguments[2]);
  if (ids.empty() || std::ssize(ids) > file.config.block_size) {
    user_error("--prompt: ", ids.size(), " tokens, expected 1 to ", file.config.block_size);
  }
  SamplingConfig greedy;
  greedy.temperature = 0;
  std::vector<std::int32_t> greedy_ids;
  SelfCommunicator communicator;
  Context context(*backend, model, communicator);
  generate(context, ids, std::atoll(arguments[4].c_str()), greedy, 0, [&](std::size_t, std::int32_t id) {
    greedy_ids.push_back(id);
    return true;
  });
  const FloatJson json = {{"ids", ids},
                          {"logits", last_logits(*backend, model, ids)},
                          {"greedy_ids", greedy_ids},
                          {"greedy_text", tokenizer->decode(greedy_ids)}};
  // A text may contain invalid UTF-8.
  std::cout << json.dump(-1, ' ', false, FloatJson::error_handler_t::replace) << '\n';
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_program(argv[0], [&] { return stagegpt::probe(argc, argv); });
}
