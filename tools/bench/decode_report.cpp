#include "tools/bench/decode_report.h"

#include <cstdio>

#include "common/base/grouped.h"
#include "common/base/json.h"

namespace stagegpt {

Json decode_json(const DecodeSubject& subject, const DecodeReport& report) {
  return {{"model", subject.model},
          {"parameters", subject.parameters},
          {"weights", subject.weights},
          {"threads", subject.threads},
          {"tokens_per_second", 1e3 / report.token_ms.median()},
          {"ms_per_token",
           {{"median", report.token_ms.median()},
            {"min", report.token_ms.quantile(0)},
            {"max", report.token_ms.quantile(1)}}},
          {"bytes_per_token", report.bytes_per_token},
          {"gbytes_per_second", report.bytes_per_second() / 1e9},
          {"memory_gbytes_per_second", report.memory_bytes_per_second / 1e9},
          {"bandwidth_share", report.bandwidth_share()},
          {"peak_memory_bytes", report.peak_bytes},
          {"busy", busy_json(report.load)}};
}

void print_decode_table(const DecodeSubject& subject, const DecodeReport& report) {
  std::printf("%s, %s parameters, matrices in %s\n%s\n", subject.model.c_str(),
              grouped(subject.parameters).c_str(), subject.weights.c_str(), subject.machine.c_str());
  std::printf("token     %.2f ms (median of %lld; %.2f to %.2f), %s tokens/s\n", report.token_ms.median(),
              static_cast<long long>(report.token_ms.size()), report.token_ms.quantile(0),
              report.token_ms.quantile(1), grouped(1e3 / report.token_ms.median(), 1).c_str());
  std::printf("reads     %.1f MB a token: %.1f GB/s, %.0f %% of the %.1f GB/s that memory gives\n",
              report.bytes_per_token / 1e6, report.bytes_per_second() / 1e9, 100 * report.bandwidth_share(),
              report.memory_bytes_per_second / 1e9);
  std::printf("memory    %s MiB\n", grouped(static_cast<double>(report.peak_bytes) / (1 << 20), 1).c_str());
}

}  // namespace stagegpt
