// What all scans share: arguments, teams of threads, which sequences still run, dropout's random numbers.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#include "sparse.h"

namespace rru::RRU_ISA {

// Reads a call's arguments in the order `scan/native.py` wrote them; tensors that it left out at the end are null.
struct Arguments {
  const int64_t* numbers;
  void* const* tensors;
  void* const* end;
  int threads;

  int number() { return static_cast<int>(*numbers++); }
  uint64_t seed() { return static_cast<uint64_t>(*numbers++); }
  double real() {
    double value;
    std::memcpy(&value, numbers++, sizeof value);
    return value;
  }
  template <typename T>
  T* tensor() {
    return tensors == end ? nullptr : static_cast<T*>(*tensors++);
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

// Where the members of a team wait for one another. They have the machine to themselves as a rule, so they spin at first.
// Once it is broken, because one of them will never come, waiting throws.
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}

  void wait() {
    if (members_ == 1) return;
    const int phase = phase_.load(std::memory_order_acquire);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
      waiting_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
    } else {
      for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
        if (broken_.load(std::memory_order_relaxed)) throw std::runtime_error("another thread failed");
        if (spins > 4000) std::this_thread::yield();
      }
    }
  }

  void break_up() { broken_.store(true, std::memory_order_relaxed); }

 private:
  const int members_;
  std::atomic<int> waiting_{0}, phase_{0};
  std::atomic<bool> broken_{false};
};

// Runs work(0), work(1) ... at the same time, the first on this thread. If one fails, or cannot be started, `release` frees
// those that wait for it, and its exception is thrown here once all have ended.
template <typename Work, typename Release>
void in_parallel(int threads, const Work& work, const Release& release) {
  std::exception_ptr failure;
  std::mutex one_at_a_time;
  auto fail = [&] {
    std::lock_guard<std::mutex> guard(one_at_a_time);
    if (!failure) failure = std::current_exception();
    release();
  };
  auto run = [&](int thread) {
    try {
      FlushDenormals flush;
      work(thread);
    } catch (...) {
      fail();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
    run(0);
  } catch (...) {
    fail();
  }
  for (auto& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

// A sequence of the batch: which one, and how many steps it has.
struct Sequence {
  int row, length;
  // Where in time its s-th step is.
  int at(int s, bool reverse) const { return reverse ? length - 1 - s : s; }
};

// How many of a team's sequences, the longest first, have an s-th step.
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

// Words of 32 bits, each in 64: what Philox multiplies.
typedef uint64_t Words __attribute__((vector_size(RRU_VECTOR_BYTES)));

inline Words widening_product(Words a, uint32_t b) {
#if RRU_VECTOR_BYTES == 64
  return (Words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif RRU_VECTOR_BYTES == 32
  return (Words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
  return a * b;
#endif
}

// Dropout's masks: see scan/dropout.py, which is the definition.
struct Dropout {
  uint64_t seed;
  double rate;  // zero: no dropout

  static constexpr int lanes = RRU_VECTOR_BYTES / 8, vectors = 4, words = 4 * lanes * vectors;

  bool active() const { return rate > 0; }

  // Philox4x32-10 of the counters (first_block, row, step, 0), (first_block + 1, row, step, 0) ..., as many as fill `out`.
  void random(uint32_t first_block, uint32_t row, uint32_t step, uint32_t (&out)[words]) const {
    Words c0[vectors], c1[vectors], c2[vectors], c3[vectors];
    for (int v = 0; v < vectors; ++v) {
      uint64_t blocks[lanes];
      for (int i = 0; i < lanes; ++i) blocks[i] = first_block + v * lanes + i;
      std::memcpy(&c0[v], blocks, sizeof blocks);
      c1[v] = Words{} + row, c2[v] = Words{} + step, c3[v] = Words{};
    }
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      RRU_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const Words p0 = widening_product(c0[v], 0xD2511F53), p1 = widening_product(c2[v], 0xCD9E8D57);
        c0[v] = (p1 >> 32) ^ c1[v] ^ k0, c1[v] = p1 & 0xFFFFFFFF;
        c2[v] = (p0 >> 32) ^ c3[v] ^ k1, c3[v] = p0 & 0xFFFFFFFF;
      }
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    for (int v = 0; v < vectors; ++v) {
      const Words low = c0[v] | c1[v] << 32, high = c2[v] | c3[v] << 32;
      for (int i = 0; i < lanes; ++i) {
        const uint64_t four[2] = {low[i], high[i]};
        std::memcpy(out + 4 * (v * lanes + i), four, sizeof four);
      }
    }
  }

  // factors[f] = 0 or 1 / (1 - rate) for f < features, for one step of one row of the batch.
  template <typename T>
  void mask(int step, int row, int features, T* factors) const {
    const double share = std::nearbyint(rate * 4294967296.0);
    if (share > 4294967295.0) return static_cast<void>(std::fill_n(factors, features, T(0)));  // all but one
    const uint32_t threshold = static_cast<uint32_t>(share);
    const T kept = static_cast<T>(1 / (1 - rate));
    alignas(64) uint32_t bits[words];
    T block[words];
    for (int first = 0; first < features; first += words) {
      random(first / 4, row, step, bits);
      T* target = features - first < words ? block : factors + first;
      for (int i = 0; i < words; ++i) target[i] = bits[i] >= threshold ? kept : T(0);
      if (target == block) std::copy_n(block, features - first, factors + first);
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
    dropout.seed = in.seed(), dropout.rate = in.real();
    lengths = in.tensor<int64_t>();
    x = in.tensor<T>();
  }

  // Whether there are products enough to pack the weights for.
  bool packs() const { return static_cast<int64_t>(steps) * batch >= 16; }
  // Which of the T * B tokens the s-th step of a sequence is.
  size_t token(const Sequence& sequence, int s) const {
    return static_cast<size_t>(sequence.at(s, reverse)) * batch + sequence.row;
  }
  // The dropout mask of a step; leaves `factors` alone without dropout.
  void mask(const Sequence& sequence, int s, int features, T* factors) const {
    if (dropout.active()) dropout.mask(sequence.at(s, reverse), sequence.row, features, factors);
  }
};

// A thread at work on its team's sequences. All members go through the same steps: a product, of which each does a share
// of the columns, or something for every row, of which each does some; and wait for one another after each.
class Member {
 public:
  Member(Share share, Barrier& barrier, int thread) : thread(thread), share_(share), barrier_(barrier) {}

  template <typename Work>
  void rows(int count, const Work& work) {
    for (int i = share_.index; i < count; i += share_.size) work(i);
    barrier_.wait();
  }
  template <typename T>
  void product(const T* const* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out) {
    multiply<T>(a, rows, matrix, start, out, share_);
    barrier_.wait();
  }
  template <typename T>
  void product(const SparseRow<T>* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out) {
    multiply_sparse<T>(a, rows, matrix, start, out, share_);
    barrier_.wait();
  }
  template <typename T>
  void product_at(const T* const* a, int rows, const Packed<T>& matrix, const SparseRow<T>* at, T* const* out) {
    multiply_at<T>(a, rows, matrix, at, out, share_);
    barrier_.wait();
  }

  const int thread;

 private:
  const Share share_;
  Barrier& barrier_;
};

// The batch dealt out to teams of threads: a team of its own for every thread where each gets rows enough to make good use
// of the weights it reads, else one team of all threads, which share the weights' columns. The longest sequences come
// first, so that those still running are always a team's first ones.
struct Teams {
  int members;
  std::vector<std::vector<Sequence>> sequences;

  template <typename T>
  Teams(const Scan<T>& scan, int threads, size_t weight_bytes) {
    constexpr int rows_enough = 12;
    constexpr size_t cache = 1 << 20;  // what a core has to itself
    const bool shared = scan.batch < rows_enough * threads && weight_bytes > cache;
    members = shared ? threads : 1;
    sequences.resize(shared ? 1 : std::max(1, std::min(threads, scan.batch)));
    std::vector<Sequence> all(scan.batch);
    for (int b = 0; b < scan.batch; ++b) all[b] = {b, scan.lengths ? static_cast<int>(scan.lengths[b]) : scan.steps};
    std::stable_sort(all.begin(), all.end(), [](const Sequence& a, const Sequence& b) { return a.length > b.length; });
    for (int i = 0; i < scan.batch; ++i) sequences[i % sequences.size()].push_back(all[i]);
  }

  // Runs work(member, sequences, scratch) on every thread; the members of a team share a scratch = make(rows of the team).
  template <typename Make, typename Work>
  void run(const Make& make, const Work& work) const {
    std::vector<decltype(make(0))> scratch;
    std::vector<std::unique_ptr<Barrier>> barriers;
    for (const auto& team : sequences) {
      scratch.push_back(make(static_cast<int>(team.size())));
      barriers.push_back(std::make_unique<Barrier>(members));
    }
    auto run_one = [&](int thread) {
      const int team = thread / members;
      Member member({thread % members, members}, *barriers[team], thread);
      work(member, sequences[team], scratch[team]);
    };
    in_parallel(members * static_cast<int>(sequences.size()), run_one, [&] {
      for (auto& barrier : barriers) barrier->break_up();
    });
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
