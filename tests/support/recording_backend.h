// A backend that computes like the plain one and writes down the name of each op it is asked for. What
// derives from it may compute something else.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stage0_serial/host_backend.h"
#include "stage0_serial/naive_backend.h"

namespace stagegpt::test {

class RecordingBackend : public HostBackend {
 public:
  // The calls since the last time.
  std::vector<std::string> take_calls() const { return std::exchange(calls_, {}); }

 protected:
  Backend& log(const char* name) const {
    calls_.emplace_back(name);
    return *plain_;
  }

 private:
  void do_fill(const Tensor& out, double value) override { log("fill").fill(out, value); }
  void do_copy(const Tensor& out, const Tensor& in) override { log("copy").copy(out, in); }
  void do_add(const Tensor& out, const Tensor& a, const Tensor& b) override { log("add").add(out, a, b); }
  void do_cast(const Tensor& out, const Tensor& in) override { log("cast").cast(out, in); }
  void do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                            const Tensor& wpe) override {
    log("embedding_forward").embedding_forward(out, ids, wte, wpe);
  }
  void do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                             const Tensor& ids) override {
    log("embedding_backward").embedding_backward(dwte, dwpe, dout, ids);
  }
  void do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) override {
    log("linear_forward").linear_forward(out, x, w, bias);
  }
  void do_linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                          const Tensor& x, const Tensor& w) override {
    log("linear_backward").linear_backward(dx, dw, dbias, dout, x, w);
  }
  void do_activation_forward(const Tensor& out, const Tensor& x, Activation activation) override {
    log("activation_forward").activation_forward(out, x, activation);
  }
  void do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                              Activation activation) override {
    log("activation_backward").activation_backward(dx, dout, x, activation);
  }
  void do_layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                            const Tensor& w, const Tensor& bias, double eps) override {
    log("layernorm_forward").layernorm_forward(out, mean, rstd, x, w, bias, eps);
  }
  void do_layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                             const Tensor& x, const Tensor& w, const Tensor& mean,
                             const Tensor& rstd) override {
    log("layernorm_backward").layernorm_backward(dx, dw, dbias, dout, x, w, mean, rstd);
  }
  void do_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head,
                            const Dropout& dropout) override {
    log("attention_forward").attention_forward(out, lse, qkv, n_head, dropout);
  }
  void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const Tensor& qkv, int n_head, const Dropout& dropout) override {
    log("attention_backward").attention_backward(dqkv, dout, out, lse, qkv, n_head, dropout);
  }
  void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                   std::int64_t first) override {
    log("cached_attention_forward").cached_attention_forward(out, cache, qkv, n_head, first);
  }
  void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) override {
    log("dropout_forward").dropout_forward(out, x, dropout);
  }
  void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) override {
    log("dropout_backward").dropout_backward(dx, dout, dropout);
  }
  void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size) override {
    log("cross_entropy_forward").cross_entropy_forward(loss, lse, logits, targets, vocab_size);
  }
  void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                 const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) override {
    log("cross_entropy_backward").cross_entropy_backward(dlogits, dloss, logits, lse, targets, vocab_size);
  }
  void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab_size) override {
    log("count_correct").count_correct(count, logits, targets, vocab_size);
  }
  void do_squared_norm(const Tensor& out, const Tensor& x) override {
    log("squared_norm").squared_norm(out, x);
  }
  void do_adamw(const Tensor& weights, const Tensor& m, const Tensor& v, const Tensor& grads,
                const Tensor& squared_norm, std::span<const DecayRange> ranges,
                const AdamWStep& step) override {
    log("adamw").adamw(weights, m, v, grads, squared_norm, ranges, step);
  }

  const std::unique_ptr<Backend> plain_ = make_naive_backend();
  mutable std::vector<std::string> calls_;
};

}  // namespace stagegpt::test
