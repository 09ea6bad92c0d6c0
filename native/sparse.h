// Products that skip zeros: rows of which few entries are not zero, times a packed matrix, and a matrix's gradient.
#pragma once
#include "kernels.h"

namespace rru::RRU_ISA {

// The entries of a row that are not zero, in ascending order.
template <typename T>
struct SparseRow {
  const int* index;
  const T* value;
  int count;
};

// Many of them. Memory that no entry needs is never touched, so it costs nothing but addresses.
template <typename T>
class SparseRows {
 public:
  SparseRows(size_t rows, int size)
      : size_(size),
        index_(new int[rows * (size + size_t{1})]),
        value_(new T[rows * (size + size_t{1})]),
        count_(rows) {}

  void collect(size_t r, const T* row) {
    int* positions = index_.get() + r * (size_ + size_t{1});
    T* entries = value_.get() + r * (size_ + size_t{1});
    int next = 0;
    for (int i = 0; i < size_; ++i) {  // without a branch: an entry that is zero is overwritten by the next
      positions[next] = i, entries[next] = row[i];
      next += row[i] != 0;
    }
    count_[r] = next;
  }

  SparseRow<T> operator[](size_t r) const {
    return {index_.get() + r * (size_ + size_t{1}), value_.get() + r * (size_ + size_t{1}), count_[r]};
  }

 private:
  int size_;
  std::unique_ptr<int[]> index_;
  std::unique_ptr<T[]> value_;
  std::vector<int> count_;
};

// Where the entries of each row fall among blocks of `block` positions: bounds[r * (blocks + 1) + b] is the first of
// row r's entries in block b, or one soon after it: a multiple of `Step` but at the end.
template <int Step, typename T>
std::vector<int> block_bounds(const SparseRow<T>* rows, int count, int block, int blocks) {
  std::vector<int> bounds(static_cast<size_t>(count) * (blocks + 1));
  for (int r = 0; r < count; ++r) {
    int* row = bounds.data() + static_cast<size_t>(r) * (blocks + 1);
    int i = 0;
    for (int b = 0; b < blocks; ++b) {
      while (i < rows[r].count && rows[r].index[i] < b * block) i += Step;
      row[b] = std::min(i, rows[r].count);
    }
    row[blocks] = rows[r].count;
  }
  return bounds;
}

// out[r] = start[r] + a[r] * matrix, where only the entries of a[r] that are not zero cost anything; null `start`: zero.
// The matrix is used block by block, small enough for the first-level cache and shared by all rows.
template <typename T>
void multiply_sparse(const SparseRow<T>* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out,
                     Share share) {
  constexpr int lanes = Simd<T>::lanes, width = Packed<T>::width, panels = 4, vectors = 2 * panels, block = 64;
  const size_t stride = static_cast<size_t>(matrix.depth) * width;
  const int blocks = (matrix.depth + block - 1) / block;
  const std::vector<int> bounds = block_bounds<1>(a, rows, block, blocks);
  const int end = share.last(matrix.panels);
  for (int p = share.first(matrix.panels); p < end; p += panels) {
    const int present = std::min(end - p, panels);
    const T* base = matrix.panel(p);
    for (int r = 0; r < rows; ++r) {
      T* target = out[r] + p * width;
      if (!start) std::fill_n(target, present * width, T(0));
      else if (start[r] != out[r]) std::copy_n(start[r] + p * width, present * width, target);
    }
    for (int b = 0; b < blocks; ++b) {
      for (int r = 0; r < rows; ++r) {
        const int* index = a[r].index;
        const T* value = a[r].value;
        T* target = out[r] + p * width;
        const int* bound = bounds.data() + static_cast<size_t>(r) * (blocks + 1) + b;
        if (present == panels) {
          Vector<T> sums[vectors];
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) sums[v] = load(target + v * lanes);
          for (int i = bound[0]; i < bound[1]; ++i) {
            const T* line = base + static_cast<size_t>(index[i]) * width;
            RRU_UNROLL
            for (int v = 0; v < vectors; ++v) sums[v] += value[i] * load(line + (v / 2) * stride + (v % 2) * lanes);
          }
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) store(target + v * lanes, sums[v]);
        } else {
          for (int q = 0; q < present; ++q) {
            Vector<T> low = load(target + q * width), high = load(target + q * width + lanes);
            for (int i = bound[0]; i < bound[1]; ++i) {
              const T* line = base + q * stride + static_cast<size_t>(index[i]) * width;
              low += value[i] * load(line), high += value[i] * load(line + lanes);
            }
            store(target + q * width, low), store(target + q * width + lanes, high);
          }
        }
      }
    }
  }
}

// `Count` inner products of `row` with lines of a packed matrix, over some of its panels; added to `result`.
template <int Count, typename T>
inline void products_at(const T* row, const T* base, const int* index, size_t stride, int panels, T* result) {
  constexpr int lanes = Simd<T>::lanes, width = Packed<T>::width;
  const T* lines[Count];
  Vector<T> sums[Count][2] = {};
  RRU_UNROLL
  for (int i = 0; i < Count; ++i) lines[i] = base + static_cast<size_t>(index[i]) * width;
  for (size_t q = 0; q < static_cast<size_t>(panels); ++q) {
    const Vector<T> low = load(row + q * width), high = load(row + q * width + lanes);
    RRU_UNROLL
    for (int i = 0; i < Count; ++i) {
      sums[i][0] += low * load(lines[i] + q * stride);
      sums[i][1] += high * load(lines[i] + q * stride + lanes);
    }
  }
  RRU_UNROLL
  for (int i = 0; i < Count; ++i) result[i] += sum<T>(sums[i][0] + sums[i][1]);
}

// result[r][i] = a[r] . matrix row at[r].index[i]: those entries of a * transposed(matrix) that are asked for, in this
// share of the matrix's rows.
// Rows of `a` must be `padded()` wide, zero after the matrix's columns.
template <typename T>
void multiply_at(const T* const* a, int rows, const Packed<T>& matrix, const SparseRow<T>* at, T* const* result,
                 Share share) {
  constexpr int width = Packed<T>::width, panels = 16, block = 64, together = 4;
  const size_t stride = static_cast<size_t>(matrix.depth) * width;
  const int blocks = (matrix.depth + block - 1) / block;
  const std::vector<int> bounds = block_bounds<together>(at, rows, block, blocks);
  const int begin = share.first(blocks), end = share.last(blocks);
  for (int r = 0; r < rows; ++r) {
    const int* bound = bounds.data() + static_cast<size_t>(r) * (blocks + 1);
    std::memset(result[r] + bound[begin], 0, sizeof(T) * (bound[end] - bound[begin]));
  }
  for (int p = 0; p < matrix.panels; p += panels) {
    const int present = std::min(matrix.panels - p, panels);
    for (int b = begin; b < end; ++b) {
      for (int r = 0; r < rows; ++r) {
        const int* bound = bounds.data() + static_cast<size_t>(r) * (blocks + 1) + b;
        int i = bound[0];
        for (; i + together <= bound[1]; i += together)
          products_at<together>(a[r] + p * width, matrix.panel(p), at[r].index + i, stride, present, result[r] + i);
        for (; i < bound[1]; ++i)
          products_at<1>(a[r] + p * width, matrix.panel(p), at[r].index + i, stride, present, result[r] + i);
      }
    }
  }
}

// The gradient of a matrix: the sum over all tokens of sparse(token)[f] * dense(token)[column], for the features f in this
// share. dense(token, column, size, target) copies a piece of a row; result(f, count, column, size, sums, width) takes a
// block of results, sums[f * width + column]. Both are cut so that a block of the dense rows stays in the first-level cache, and the sums of
// a block of features in the second; within these, entries are sorted by feature.
template <typename T, typename Sparse, typename Dense, typename Result>
void sparse_gradient(const Sparse& sparse, int tokens, int features, const Dense& dense, int columns,
                     const Result& result, Share share) {
  constexpr int lanes = Simd<T>::lanes, vectors = 8, width = vectors * lanes, tokens_together = 64, together = 256;
  struct Entry {
    int token;
    T value;
  };
  const int blocks = (tokens + tokens_together - 1) / tokens_together;
  const int begin = share.first(features), end = share.last(features);
  std::vector<int> cursor(tokens), bounds(static_cast<size_t>(blocks) * (together + 1));
  std::vector<Entry> entries;
  std::vector<T> near(tokens_together * width), sums(together * width);
  for (int t = 0; t < tokens; ++t) {
    const SparseRow<T> row = sparse(t);
    cursor[t] = static_cast<int>(std::lower_bound(row.index, row.index + row.count, begin) - row.index);
  }
  for (int first = begin; first < end; first += together) {
    const int last = std::min(end, first + together), count = last - first;
    entries.clear();
    for (int b = 0; b < blocks; ++b) {
      const int from = b * tokens_together, to = std::min(tokens, from + tokens_together);
      int* bound = bounds.data() + static_cast<size_t>(b) * (together + 1);
      int next[together + 1] = {};
      for (int t = from; t < to; ++t) {
        const SparseRow<T> row = sparse(t);
        for (int i = cursor[t]; i < row.count && row.index[i] < last; ++i) ++next[row.index[i] - first + 1];
      }
      bound[0] = next[0] = static_cast<int>(entries.size());
      for (int f = 0; f < count; ++f) bound[f + 1] = next[f + 1] += next[f];
      entries.resize(bound[count]);
      for (int t = from; t < to; ++t) {
        const SparseRow<T> row = sparse(t);
        int i = cursor[t];
        for (; i < row.count && row.index[i] < last; ++i)
          entries[next[row.index[i] - first]++] = {t - from, row.value[i]};
        cursor[t] = i;
      }
    }
    for (int column = 0; column < columns; column += width) {
      const int present = std::min(columns - column, width);
      std::fill(sums.begin(), sums.end(), T(0));
      for (int b = 0; b < blocks; ++b) {
        const int from = b * tokens_together, to = std::min(tokens, from + tokens_together);
        for (int t = from; t < to; ++t) dense(t, column, present, near.data() + (t - from) * width);
        const int* bound = bounds.data() + static_cast<size_t>(b) * (together + 1);
        for (int f = 0; f < count; ++f) {
          Vector<T> total[vectors];
          T* target = sums.data() + f * width;
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) total[v] = load(target + v * lanes);
          for (int i = bound[f]; i < bound[f + 1]; ++i) {
            const T* line = near.data() + entries[i].token * width;
            RRU_UNROLL
            for (int v = 0; v < vectors; ++v) total[v] += entries[i].value * load(line + v * lanes);
          }
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) store(target + v * lanes, total[v]);
        }
      }
      result(first, count, column, present, sums.data(), width);
    }
  }
}
}  // namespace rru::RRU_ISA
