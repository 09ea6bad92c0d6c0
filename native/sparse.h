// Products that skip zeros: sparse rows times a packed matrix. Gradients of matrices: sparse_gradient.h.
#pragma once
#include <atomic>

#include "products.h"

namespace rru::RRU_ISA {

// Products with sparse rows process a matrix in blocks: the lines of kSparseBlock features, in a strip of up to
// kStripPanels panels. A block takes 32 kB, about the L1 cache, and is used for all rows before the next one. A row has
// few entries in a block, and each time a few dozen cycles pass until the first sum, so smaller blocks are slower.
// Meanwhile the next block is fetched into the L2 cache: which lines a row reads is random, so the processor cannot guess.
constexpr int kStripPanels = 4, kSparseBlock = 32768 / (2 * kStripPanels * RRU_VECTOR_BYTES);

// The nonzeros of a row, in ascending order of index.
template <typename T>
struct SparseRow {
  const int* index;
  const T* value;
  int count;
  const int* bounds;  // bounds[b] is the first entry in block b
};

// Many sparse rows. Memory that no entry needs is never touched, so it costs only address space.
template <typename T>
class SparseRows {
 public:
  SparseRows(size_t rows, int size)
      : size_(size),
        blocks_((size + kSparseBlock - 1) / kSparseBlock),
        index_(rows * capacity()),
        value_(rows * capacity()),
        bounds_(rows * (blocks_ + size_t{1})),
        start_(rows),
        count_(rows) {}

  // Set row r to the nonzeros of `row`, which has `size` entries. It can be set again.
  void collect(size_t r, const T* row) { put(r, r * capacity(), row); }

  // Set row r like `collect`, but behind all rows that were added before, by any thread. Must be called once per row.
  void add(size_t r, const T* row) {
    int count = 0;
    for (int i = 0; i < size_; ++i) count += row[i] != 0;
    put(r, end_.fetch_add(round_up(count + 1, padding), std::memory_order_relaxed), row);
  }

  SparseRow<T> operator[](size_t r) const {
    return {index_.get() + start_[r], value_.get() + start_[r], count_[r],
            bounds_.get() + r * (blocks_ + size_t{1})};
  }

 private:
  static constexpr int padding = kCacheLine / sizeof(int);

  size_t capacity() const { return round_up(size_ + 1, padding); }

  void put(size_t r, size_t start, const T* row) {
    int* positions = index_.get() + start;
    T* entries = value_.get() + start;
    int count = 0;
    for (int i = 0; i < size_; ++i) {  // branchless: the next entry overwrites a zero
      positions[count] = i, entries[count] = row[i];
      count += row[i] != 0;
    }
    start_[r] = start, count_[r] = count;
    int* bounds = bounds_.get() + r * (blocks_ + size_t{1});
    for (int b = 0, i = 0; b < blocks_; ++b) {
      while (i < count && positions[i] < b * kSparseBlock) ++i;
      bounds[b] = i;
    }
    bounds[blocks_] = count;
  }

  int size_, blocks_;
  Buffer<int> index_;
  Buffer<T> value_;
  Buffer<int> bounds_;
  std::vector<size_t> start_;
  std::vector<int> count_;
  std::atomic<size_t> end_{0};  // of the rows that were added
};

// Fetches the lines of a block into the L2 cache, a part for each row that is processed meanwhile.
template <int Panels, typename T>
class Prefetch {
 public:
  // The block is the first `lines` lines of the panels from `start`.
  Prefetch(const T* start, size_t stride, int lines, int rows) : start_(start), stride_(stride), lines_(lines), rows_(rows) {}

  void row_done() {
    constexpr int width = Packed<T>::width, step = kCacheLine / sizeof(T);
    for (behind_ += lines_; behind_ >= rows_; behind_ -= rows_, start_ += width)
      RRU_UNROLL
    for (int i = 0; i < Panels * width; i += step)
      __builtin_prefetch(start_ + (i / width) * stride_ + i % width, 0, 2);
  }

 private:
  const T* start_;
  const size_t stride_;
  const int lines_, rows_;
  int behind_ = 0;
};

// Call run(panel, count) for each strip in panels begin..end, with count a constant up to kStripPanels. Strips are
// equally wide: 13 panels are 4 + 3 + 3 + 3.
template <typename Run>
inline void for_each_strip(int begin, int end, const Run& run) {
  for (int strips = (end - begin + kStripPanels - 1) / kStripPanels; strips > 0; --strips) {
    const int count = (end - begin + strips - 1) / strips;
    static_assert(kStripPanels == 4, "one case for each width");
    switch (count) {
      case 1: run(begin, std::integral_constant<int, 1>()); break;
      case 2: run(begin, std::integral_constant<int, 2>()); break;
      case 3: run(begin, std::integral_constant<int, 3>()); break;
      default: run(begin, std::integral_constant<int, 4>());
    }
    begin += count;
  }
}

// Add to `target` the sum of value * matrix line over entries begin..end of a row, for `Panels` adjacent panels, the
// first at `base`.
template <int Panels, typename T>
inline void add_lines(const SparseRow<T>& row, int begin, int end, const T* base, size_t stride, T* target) {
  constexpr int lanes = Simd<T>::lanes, width = Packed<T>::width, vectors = 2 * Panels;
  constexpr int together = Panels == 1 ? 4 : Panels < 4 ? 2 : 1;  // entries: enough sums to keep the processor busy
  Vector<T> sums[together][vectors] = {};
  auto add = [&](int i, Vector<T>(&to)[vectors]) {
    const T* line = base + static_cast<size_t>(row.index[i]) * width;
    RRU_UNROLL
    for (int v = 0; v < vectors; ++v) to[v] += row.value[i] * load(line + (v / 2) * stride + (v % 2) * lanes);
  };
  RRU_UNROLL
  for (int v = 0; v < vectors; ++v) sums[0][v] = load(target + v * lanes);
  int i = begin;
  for (; i + together <= end; i += together)
    RRU_UNROLL
  for (int t = 0; t < together; ++t) add(i + t, sums[t]);
  for (; together > 1 && i < end; ++i) add(i, sums[0]);
  RRU_UNROLL
  for (int t = 1; t < together; ++t)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) sums[0][v] += sums[t][v];
  RRU_UNROLL
  for (int v = 0; v < vectors; ++v) store(target + v * lanes, sums[0][v]);
}

// Compute out[r] = start[r] + a[r] * matrix, skipping the zeros of a[r]. If `start` is null, the matrix's bias is used.
template <typename T>
void multiply_sparse(const SparseRow<T>* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out,
                     Share share) {
  const T* const bias = matrix.bias.get();
  const Start<T> starts = start ? Start<T>{start, 1} : Start<T>{&bias, 0};
  constexpr int width = Packed<T>::width;
  const size_t stride = matrix.stride();
  for_each_strip(share.first(matrix.panels), share.last(matrix.panels), [&](int p, auto panels) {
    for (int r = 0; r < rows; ++r) std::copy_n(starts[r] + p * width, panels * width, out[r] + p * width);
    for (int first = 0, b = 0; first < matrix.depth; first += kSparseBlock, ++b) {
      const int next = std::min(first + kSparseBlock, matrix.depth), after = std::min(next + kSparseBlock, matrix.depth);
      Prefetch<panels(), T> prefetch(matrix.panel(p) + static_cast<size_t>(next) * width, stride, after - next, rows);
      for (int r = 0; r < rows; ++r) {
        add_lines<panels()>(a[r], a[r].bounds[b], a[r].bounds[b + 1], matrix.panel(p), stride, out[r] + p * width);
        prefetch.row_done();
      }
    }
  });
}

// Add to sums[i] the products of `row` and line index[i] of a matrix, for i < count, in `Panels` panels from `base`.
template <int Panels, typename T>
inline void add_products(const T* row, const T* base, const int* index, int count, size_t stride, Vector<T>* sums) {
  constexpr int lanes = Simd<T>::lanes, width = Packed<T>::width;
  Vector<T> own[2 * Panels];
  RRU_UNROLL
  for (int v = 0; v < 2 * Panels; ++v) own[v] = load(row + v * lanes);
  for (int i = 0; i < count; ++i) {
    const T* line = base + static_cast<size_t>(index[i]) * width;
    Vector<T> low = sums[i], high{};
    RRU_UNROLL
    for (int q = 0; q < Panels; ++q) {
      low += own[2 * q] * load(line + q * stride);
      high += own[2 * q + 1] * load(line + q * stride + lanes);
    }
    sums[i] = low + high;
  }
}

// Set result[r][i] to the inner product of a[r] and matrix row at[r].index[i], for this share of the matrix's rows.
// These are selected entries of a * transposed(matrix). Rows of `a` must be `padded()` wide, with zeros after the
// matrix's columns.
template <typename T>
void multiply_at(const T* const* a, int rows, const Packed<T>& matrix, const SparseRow<T>* at, T* const* result,
                 Share share) {
  constexpr int width = Packed<T>::width, together = 32;  // rows
  alignas(kCacheLine) Vector<T> sums[together * kSparseBlock];
  const size_t stride = matrix.stride();
  const int blocks = (matrix.depth + kSparseBlock - 1) / kSparseBlock, end = share.last(blocks);
  for (int b = share.first(blocks); b < end; ++b) {
    const int lines = std::min(kSparseBlock, matrix.depth - b * kSparseBlock);
    for (int some = 0; some < rows; some += together) {
      const int last = std::min(rows, some + together);
      int entries = 0;
      for (int r = some; r < last; ++r) entries += at[r].bounds[b + 1] - at[r].bounds[b];
      std::fill_n(sums, entries, Vector<T>{});
      for_each_strip(0, matrix.panels, [&](int p, auto panels) {
        const T* near = matrix.panel(p) + static_cast<size_t>(b) * kSparseBlock * width;
        const bool more = p + 2 * panels <= matrix.panels;  // else the next strip may be narrower
        Prefetch<panels(), T> prefetch(near + panels * stride, stride, more ? lines : 0, last - some);
        Vector<T>* target = sums;
        for (int r = some; r < last; ++r) {
          const int first = at[r].bounds[b], count = at[r].bounds[b + 1] - first;
          add_products<panels()>(a[r] + p * width, matrix.panel(p), at[r].index + first, count, stride, target);
          target += count;
          prefetch.row_done();
        }
      });
      const Vector<T>* found = sums;
      for (int r = some; r < last; ++r)
        for (int i = at[r].bounds[b]; i < at[r].bounds[b + 1]; ++i) result[r][i] = sum<T>(*found++);
    }
  }
}
}  // namespace rru::RRU_ISA
