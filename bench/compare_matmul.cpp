// Times the packed GEMM and OpenBLAS on the products of GPT-2's linear layers, in turns on this machine. The
// default is `packed` everywhere, so that equal programs have equal bits; this tells where it is not the
// faster one.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/app/command_line.h"
#include "common/autograd/ops/linear.h"
#include "common/base/json.h"
#include "common/base/seconds_since.h"
#include "common/comm/rank_group.h"
#include "common/io/work_progress.h"
#include "common/measure/machine_load.h"
#include "common/measure/step_times.h"
#include "common/profile/peak.h"
#include "common/system/openmp_environment.h"
#include "stage0_serial/blas/openblas.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/kernels/packed_kernels.h"

namespace stagegpt {
namespace {

constexpr int kTurns = 5;

// A product of a linear layer: "forward" (N,O), "dX" (N,I) or "dW" (O,I), for N rows, O outputs and I inputs.
struct ComparedProduct {
  std::string name;
  std::int64_t N = 0, O = 0, I = 0;
  double packed = 0, openblas = 0;  // FLOP/s

  double flops() const { return 2.0 * static_cast<double>(N * O * I); }
};

// A linear layer on one backend.
struct Layer {
  Layer(Backend& on, const ComparedProduct& p)
      : backend(on),
        x(random_tensor(on, {p.N, p.I}, 1)),
        w(random_tensor(on, {p.O, p.I}, 2)),
        dout(random_tensor(on, {p.N, p.O}, 3)),
        out(on.allocate(DType::f32, {p.N, p.O})),
        dx(on.allocate(DType::f32, {p.N, p.I})),
        dw(on.allocate(DType::f32, {p.O, p.I})) {}

  void compute(const std::string& product) const {
    const Grad none;
    if (product == "forward") {
      backend.run(LinearForward{out, x, w, Tensor()});
    } else if (product == "dX") {
      backend.run(LinearBackward{{dx, GradMode::overwrite}, none, none, dout, x, w});
    } else {
      backend.run(LinearBackward{none, {dw, GradMode::overwrite}, none, dout, x, w});
    }
  }
  double seconds(const std::string& product, int repeats) const {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) compute(product);
    return seconds_since(start) / repeats;
  }

  Backend& backend;
  Tensor x, w, dout, out, dx, dw;
};

void measure(ComparedProduct& product, const Layer& packed, const Layer& openblas) {
  constexpr double kLeastSeconds = 3e-3;  // of a measurement, which repeats a short product
  for (const Layer* layer : {&openblas, &packed}) layer->compute(product.name);
  const double once = std::max(packed.seconds(product.name, 1), 1e-6);
  const int repeats = static_cast<int>(std::ceil(kLeastSeconds / once));
  Samples of_packed, of_openblas;
  for (int turn = 0; turn < kTurns; ++turn) {
    of_packed.add(packed.seconds(product.name, repeats));
    of_openblas.add(openblas.seconds(product.name, repeats));
  }
  product.packed = product.flops() / of_packed.median();
  product.openblas = product.flops() / of_openblas.median();
}

// "12 %" for 1.12.
std::string percent_more(double ratio) { return concat(std::lround(100 * (ratio - 1)), " %"); }

std::string machine_of(int threads) {
  return concat("CPU, ", threads, threads == 1 ? " thread" : " threads", ", packed (",
                packed_kernels(Factors::f32).name, "), ", OpenBlas::instance().description());
}

// The products of a block of a model with C channels, for few rows and for many.
std::vector<ComparedProduct> compare_matmuls(int threads, std::int64_t C) {
  StepCounter progress(std::chrono::steady_clock::now(), "product");
  const auto packed = make_cpu_backend(threads, CpuMatmul::packed),
             openblas = make_cpu_backend(threads, CpuMatmul::blas);
  std::vector<ComparedProduct> products;
  for (const std::int64_t N : {64, 256, 1024}) {
    for (const auto& [O, I] : {std::pair{3 * C, C}, {C, C}, {4 * C, C}, {C, 4 * C}}) {
      for (const char* name : {"forward", "dX", "dW"}) products.push_back({name, N, O, I});
    }
  }
  for (std::size_t i = 0; i < products.size(); ++i) {
    measure(products[i], Layer(*packed, products[i]), Layer(*openblas, products[i]));
    progress(static_cast<std::int64_t>(i) + 1, std::ssize(products));
  }
  return products;
}

// In which of these products OpenBLAS is faster, and whether it takes less time for all of them.
std::string verdict(const std::vector<ComparedProduct>& products) {
  const auto ratio = [](const ComparedProduct& p) { return p.openblas / p.packed; };
  const auto slower = std::ranges::count_if(products, [&](const auto& p) { return ratio(p) > 1; });
  std::string text = concat("OpenBLAS is faster at ", slower, " of ", products.size(), " products");
  if (slower > 0) {
    const ComparedProduct& most = *std::ranges::max_element(products, {}, ratio);
    text += concat(", at most by ", percent_more(ratio(most)), " (", most.name, ", ", most.N, " rows, ",
                   most.O, " outputs, ", most.I, " inputs)");
  }
  double packed = 0, openblas = 0;  // seconds of all
  for (const ComparedProduct& p : products) {
    packed += p.flops() / p.packed;
    openblas += p.flops() / p.openblas;
  }
  text += ".\nAll together, ";
  return packed <= openblas
             ? text + concat("--cpu-matmul packed, the default, is faster by ",
                             percent_more(openblas / packed), '.')
             : text + concat("--cpu-matmul blas is faster by ", percent_more(packed / openblas), '.');
}

void print_json(const std::vector<ComparedProduct>& products, int threads,
                const std::optional<MachineLoad>& load) {
  auto list = Json::array();
  for (const ComparedProduct& p : products) {
    list.push_back({{"product", p.name},
                    {"rows", p.N},
                    {"outputs", p.O},
                    {"inputs", p.I},
                    {"packed_gflops", p.packed / 1e9},
                    {"openblas_gflops", p.openblas / 1e9}});
  }
  const Json object = {{"machine", machine_of(threads)},
                       {"products", list},
                       {"verdict", verdict(products)},
                       {"busy", busy_json(load)}};
  std::cout << json_text(object);
}

void print_table(const std::vector<ComparedProduct>& products, int threads) {
  std::printf("products of linear layers, in GFLOP/s: medians of %d turns\n%s\n\n", kTurns,
              machine_of(threads).c_str());
  std::printf("%-8s %6s %8s %8s %10s %10s %19s\n", "product", "rows", "outputs", "inputs", "packed",
              "OpenBLAS", "packed / OpenBLAS");
  for (const ComparedProduct& p : products) {
    std::printf("%-8s %6lld %8lld %8lld %10.1f %10.1f %19.2f\n", p.name.c_str(), static_cast<long long>(p.N),
                static_cast<long long>(p.O), static_cast<long long>(p.I), p.packed / 1e9, p.openblas / 1e9,
                p.packed / p.openblas);
  }
  std::printf("\n%s\n", verdict(products).c_str());
}

int compare_matmul_main(int argc, char** argv) {
  std::optional<std::int64_t> threads;
  std::int64_t channels = 768;
  bool json = false;
  CommandLine command_line(argv[0], "Time the packed GEMM beside OpenBLAS.", std::nullopt);
  command_line.group("Measurement");
  command_line.integer("--channels", channels, 1, 1 << 12,
                       "channels of the model whose linear layers are timed");
  command_line.integer("--threads", threads, 1, 1 << 10, "threads (default: all cores)");
  command_line.toggle("--json", json, "print one JSON object instead of a table");
  if (!command_line.parse(argc, argv)) return 0;
  const int used = static_cast<int>(threads.value_or(omp_get_num_procs()));
  SingleProcess group;
  const LoadMeter meter(group, used);
  const std::vector<ComparedProduct> products = compare_matmuls(used, channels);
  const std::optional<MachineLoad> load = meter.read();
  json ? print_json(products, used, load) : print_table(products, used);
  if (const std::string line = busy_line(load); !line.empty()) std::cerr << "warning: " << line << '\n';
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  stagegpt::restart_with_short_spins();
  return stagegpt::run_program(argv[0], [&] { return stagegpt::compare_matmul_main(argc, argv); });
}
