// The rows of a tensor past the ends of sequences. Scans do not write them.
#pragma once
#include <algorithm>

#include "arguments.h"
#include "threads.h"

namespace rru::RRU_ISA {

// Set them to zero.
template <typename T>
struct ZeroPadding {
  const int parts, steps, batch, size;
  const int64_t* lengths;  // (B,)
  T* rows;                 // (parts, T, B, size)

  explicit ZeroPadding(Arguments& in)
      : parts(in.count("parts")),
        steps(in.count("steps")),
        batch(in.count("batch")),
        size(in.count("size")),
        lengths(in.tensor<const int64_t>("lengths", {batch})),
        rows(in.tensor<T>("rows", {parts, steps, batch, size})) {}
};

template <typename T>
void run(ZeroPadding<T>& call, int threads) {
  in_parallel(
      threads,
      [&](int thread) {
        const int64_t steps = static_cast<int64_t>(call.parts) * call.steps;
        for (int64_t step = thread; step < steps; step += threads) {
          T* row = call.rows + step * call.batch * call.size;
          for (int b = 0; b < call.batch; ++b, row += call.size)
            if (step % call.steps >= call.lengths[b]) std::fill_n(row, call.size, T(0));
        }
      },
      [] {});
}
}  // namespace rru::RRU_ISA
