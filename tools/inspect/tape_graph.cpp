#include "tools/inspect/tape_graph.h"

#include <algorithm>
#include <map>

#include "common/backend/planning_backend.h"
#include "common/model/gpt2.h"

namespace stagegpt {
namespace {

class Recorder {
 public:
  Recorder(const Backend& backend, const ParameterTable& table, std::size_t before)
      : backend_(backend), table_(table), before_(before) {}

  void add(std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
    TapeNode node{.op = std::string(op), .layer = "", .inputs = {}, .parameters = {}, .outputs = {}};
    for (const Var& input : inputs) read(input, node);
    for (const Var& out : outs) {
      node.outputs.push_back(out.value().shape());
      node.bytes += out.value().bytes();
      writer_[out.value().raw()] = nodes_.size();
    }
    node.in_use = backend_.memory_stats().bytes_in_use - before_;
    nodes_.push_back(std::move(node));
  }
  std::vector<TapeNode> take() { return std::move(nodes_); }

 private:
  void read(const Var& input, TapeNode& node) const {
    if (input.leaf_id() >= 0) {
      const std::string& name = table_[static_cast<std::size_t>(input.leaf_id())].name;
      node.parameters.push_back(name);
      const std::string layer = name.substr(0, name.rfind('.'));
      if (node.layer.find(layer) == std::string::npos)
        node.layer += concat(node.layer.empty() ? "" : ", ", layer);
      return;
    }
    if (nodes_.empty()) return;
    std::size_t from = nodes_.size() - 1;  // that of an input which the op has overwritten
    if (input.value().defined()) {
      const auto writer = writer_.find(input.value().raw());
      if (writer == writer_.end()) return;  // an input of the model
      from = writer->second;
    }
    if (std::ranges::find(node.inputs, from) == node.inputs.end()) node.inputs.push_back(from);
  }

  const Backend& backend_;
  const ParameterTable& table_;
  std::size_t before_;
  std::vector<TapeNode> nodes_;
  // By address; memory that is used again belongs to its last writer.
  std::map<const void*, std::size_t> writer_;
};

}  // namespace

TapeGraph trace_tape(const Gpt2Config& config, std::int64_t B, std::int64_t T) {
  const std::unique_ptr<Backend> backend = make_planning_backend();
  const Gpt2 model(*backend, config);
  TapeGraph graph{.B = B, .T = T, .nodes = {}, .weights = backend->memory_stats().bytes_in_use};
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(B * T));
  const Tensor ids = to_device<std::int32_t>(*backend, {B, T}, tokens);
  backend->forget_memory_peak();
  Recorder recorder(*backend, model.parameters().table(), graph.weights);
  Tape tape(*backend);
  tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
    recorder.add(op, inputs, outs);
  });
  tape.backward(model.loss(tape, ids, ids));
  graph.nodes = recorder.take();
  graph.peak = backend->memory_stats().peak_bytes_in_use - graph.weights;
  return graph;
}

}  // namespace stagegpt
