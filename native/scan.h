// What all scans share: arguments, threads, which rows still run, dropout's random numbers.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernels.h"

namespace rru::RRU_ISA {

// Reads a call's arguments in the order `scan/native.py` wrote them.
struct Arguments {
  const int64_t* numbers;
  void* const* tensors;
  int threads;

  int number() { return static_cast<int>(*numbers++); }
  uint64_t seed() { return static_cast<uint64_t>(*numbers++); }
  template <typename T>
  T* tensor() {
    return static_cast<T*>(*tensors++);
  }
  void skip(int count = 1) { tensors += count; }
};

// While one lives, numbers too small to be normal count as zero: states that decay for ever would slow a run down.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | (uint64_t{1} << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before_)); }

 private:
  uint64_t before_;
#endif
};

// Runs work(0) ... work(threads - 1), each on a thread of its own, the first on the caller's.
template <typename Work>
void parallel(int threads, const Work& work) {
  auto run = [&](int i) {
    FlushDenormals flush;
    work(i);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(run, i);
  run(0);
  for (auto& other : others) other.join();
}

// A sequence of the batch: which one, and how many steps it has.
struct Sequence {
  int row, length;
  // Where in time its s-th step is.
  int at(int s, bool reverse) const { return reverse ? length - 1 - s : s; }
};

// The batch dealt out to threads, the longest sequences first, so that those still running are always the first ones.
inline std::vector<std::vector<Sequence>> deal(const int64_t* lengths, int steps, int batch, int threads) {
  std::vector<Sequence> all(batch);
  for (int b = 0; b < batch; ++b) all[b] = {b, lengths ? static_cast<int>(lengths[b]) : steps};
  std::stable_sort(all.begin(), all.end(), [](const Sequence& a, const Sequence& b) { return a.length > b.length; });
  std::vector<std::vector<Sequence>> dealt(std::max(1, std::min(threads, batch)));
  for (int i = 0; i < batch; ++i) dealt[i % dealt.size()].push_back(all[i]);
  return dealt;
}

// How many of a thread's sequences have an s-th step.
inline int running(const std::vector<Sequence>& sequences, int s) {
  int count = static_cast<int>(sequences.size());
  while (count > 0 && sequences[count - 1].length <= s) --count;
  return count;
}

// Rows of scratch memory, each `width` wide, and their addresses.
template <typename T>
struct Rows {
  std::vector<T> data;
  std::vector<T*> at;

  Rows(int count, int width) : data(static_cast<size_t>(count) * width), at(count) {
    for (int r = 0; r < count; ++r) at[r] = data.data() + static_cast<size_t>(r) * width;
  }
};

// Dropout's masks: see scan/dropout.py, which is the definition.
struct Dropout {
  uint64_t seed;
  double rate;  // zero: no dropout

  bool active() const { return rate > 0; }

  // factors[f] = 0 or 1 / (1 - rate) for f < features, of one step and one row of the batch.
  template <typename T>
  void mask(int step, int row, int features, T* factors) const {
    constexpr int at_once = 8;
    const uint32_t threshold = static_cast<uint32_t>(std::min(std::nearbyint(rate * 4294967296.0), 4294967295.0));
    const T kept = static_cast<T>(1 / (1 - rate));
    for (int first = 0; first < features; first += 4 * at_once) {
      uint32_t c0[at_once], c1[at_once], c2[at_once], c3[at_once];
      for (int i = 0; i < at_once; ++i) c0[i] = first / 4 + i, c1[i] = row, c2[i] = step, c3[i] = 0;
      uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
      for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < at_once; ++i) {
          const uint64_t p0 = uint64_t{0xD2511F53} * c0[i], p1 = uint64_t{0xCD9E8D57} * c2[i];
          c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
          c1[i] = static_cast<uint32_t>(p1);
          c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
          c3[i] = static_cast<uint32_t>(p0);
        }
        k0 += 0x9E3779B9, k1 += 0xBB67AE85;
      }
      const int count = std::min(4 * at_once, features - first);
      T block[4 * at_once];
      for (int i = 0; i < at_once; ++i) {
        block[4 * i] = c0[i] >= threshold ? kept : 0;
        block[4 * i + 1] = c1[i] >= threshold ? kept : 0;
        block[4 * i + 2] = c2[i] >= threshold ? kept : 0;
        block[4 * i + 3] = c3[i] >= threshold ? kept : 0;
      }
      std::copy(block, block + count, factors + first);
    }
  }
};

// What every scan is told, whatever its cell.
template <typename T>
struct Scan {
  int steps, batch, m, n;
  bool reverse, save;
  Dropout dropout;
  const int64_t* lengths;  // (B,), or null
  const T* x;              // (T, B, m)

  explicit Scan(Arguments& in) {
    steps = in.number(), batch = in.number(), m = in.number(), n = in.number();
    reverse = in.number(), save = in.number();
    const bool drop = in.number();
    dropout.seed = in.seed();
    lengths = in.tensor<int64_t>();
    const double* rate = in.tensor<double>();
    dropout.rate = drop ? *rate : 0;
    x = in.tensor<T>();
  }

  // Which of the T * B tokens the s-th step of a sequence is.
  size_t token(const Sequence& sequence, int s) const {
    return static_cast<size_t>(sequence.at(s, reverse)) * batch + sequence.row;
  }
  // The dropout mask of a step; leaves `factors` alone without dropout.
  void mask(const Sequence& sequence, int s, int features, T* factors) const {
    if (dropout.active()) dropout.mask(sequence.at(s, reverse), sequence.row, features, factors);
  }
};

// A row of a matrix.
template <typename T>
inline T* row_of(T* matrix, int row, int width) {
  return matrix + static_cast<size_t>(row) * width;
}

// A bias, in parts, filled up with zeros to the padded width of the product it starts.
template <typename T>
std::vector<T> padded(int width, std::initializer_list<std::pair<const T*, int>> parts) {
  std::vector<T> bias;
  for (auto [part, size] : parts) bias.insert(bias.end(), part, part + size);
  bias.resize(width);
  return bias;
}
}  // namespace rru::RRU_ISA
