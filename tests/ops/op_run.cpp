#include "tests/ops/op_run.h"

#include <limits>

namespace stagegpt::test {
namespace {

// Streams of random numbers, so that inputs, ids and projections have different numbers.
constexpr std::uint32_t kReals = 100, kIds = 200, kDirections = 300;

}  // namespace

OpRun::OpRun(Backend& backend, DType dtype, const OpCase& op, std::uint64_t seed, int constant,
             DType rounded_to)
    : backend_(backend), dtype_(dtype), rounded_to_(rounded_to), op_(op), seed_(seed) {
  std::uint32_t i = 0;
  for (const RealInput& input : op.reals) {
    const bool norm = input.role == Role::norm;
    inputs_.push_back(
        test::rounded_to(norm ? statistics_dtype(rounded_to) : rounded_to,
                         random_values(seed, kReals + i, input.shape.numel(), input.scale, input.mean)));
    const Tensor value =
        to_tensor(backend, norm ? statistics_dtype(dtype) : dtype, input.shape, inputs_.back());
    if (input.differentiable && static_cast<int>(i) != constant) {
      const bool activation = input.role == Role::activation;
      const Tensor grad = backend.allocate(activation ? dtype : statistics_dtype(dtype), input.shape);
      backend.fill(grad, std::numeric_limits<double>::quiet_NaN());
      x_.emplace_back(value, grad, static_cast<int>(i));
    } else {
      x_.emplace_back(value);
    }
    ++i;
  }
  for (const IdInput& ids : op.ids) {
    ids_.push_back(to_tensor(backend, ids.shape, random_ids(seed, kIds + i++, ids.shape.numel(), ids.range)));
  }
}

Values OpRun::direction(int projection, std::size_t output) const {
  const auto stream =
      kDirections + 10 * static_cast<std::uint32_t>(projection) + static_cast<std::uint32_t>(output);
  return test::rounded_to(rounded_to_,
                          random_values(seed_, stream, static_cast<std::int64_t>(outputs_[output].size())));
}

std::vector<Var> OpRun::forward(Tape& tape) {
  std::vector<Var> outs = op_.build(tape, x_, ids_);
  outputs_.clear();
  output_shapes_.clear();
  for (const Var& out : outs) {
    outputs_.push_back(to_values(backend_, out.value()));
    output_shapes_.push_back(out.value().shape());
  }
  return outs;
}

std::vector<Tensor> OpRun::directions(const std::vector<Var>& outs, int projection) const {
  std::vector<Tensor> directions;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const Tensor& out = outs[i].value();
    directions.push_back(to_tensor(backend_, out.dtype(), out.shape(), direction(projection, i)));
  }
  return directions;
}

void OpRun::step_from_outputs(int projection) {
  if (op_.is_loss) return step(projection);  // it must know the gradient of its output in the forward
  Tape tape(backend_);
  const std::vector<Var> outs = forward(tape);
  tape.backward(outs, directions(outs, projection));
}

void OpRun::step(int projection) {
  if (op_.is_loss) {
    outputs_ = {Values(1)};  // for direction()
    Tape tape(backend_, Tape::Mode::training, direction(projection, 0)[0]);
    return tape.backward(forward(tape)[0]);
  }
  Tape tape(backend_);
  std::vector<Var> outs = forward(tape);
  const std::vector<Tensor> directions = this->directions(outs, projection);
  const Var loss = tape.record("project", std::move(outs), backend_.zeros(dtype_, {1}),
                               [directions](const Tensor&, Grads g) {
                                 for (std::size_t i = 0; i < directions.size(); ++i) g.give(i, directions[i]);
                               });
  tape.backward(loss);
}

const std::vector<Values>& OpRun::infer() {
  Tape tape(backend_, Tape::Mode::inference);
  forward(tape);
  return outputs_;
}

}  // namespace stagegpt::test
