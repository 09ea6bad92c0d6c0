// Products of a few rows with a large matrix that is packed once and used at every time step.
//
// Compiled once for each instruction set (see setup.py): RRU_ISA names the namespace, RRU_VECTOR_BYTES is the register's
// width. Vectors are the compiler's own (GCC and Clang have them), so that one text serves SSE, AVX2, AVX-512 and NEON.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#define RRU_UNROLL _Pragma("GCC unroll 16")

namespace rru::RRU_ISA {

template <typename T>
struct Simd {
  static constexpr int lanes = RRU_VECTOR_BYTES / sizeof(T);
  typedef T type __attribute__((vector_size(RRU_VECTOR_BYTES)));
};

template <typename T>
using Vector = typename Simd<T>::type;

template <typename T>
inline Vector<T> load(const T* p) {
  Vector<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <typename T>
inline void store(T* p, Vector<T> v) {
  std::memcpy(p, &v, sizeof v);
}

template <typename T>
inline T sum(Vector<T> v) {
  T total = 0;
  RRU_UNROLL
  for (int i = 0; i < Simd<T>::lanes; ++i) total += v[i];
  return total;
}

inline int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

// A matrix of `depth` x `columns` in panels of `width` columns, each panel contiguous: element (k, j) is at
// [j / width][k][j % width]. The last panel is filled up with zeros.
template <typename T>
struct Packed {
  static constexpr int width = 2 * Simd<T>::lanes;

  int depth, columns, panels;
  std::vector<T> data;

  Packed(int depth, int columns)
      : depth(depth),
        columns(columns),
        panels(round_up(columns, width) / width),
        data(static_cast<size_t>(panels) * depth * width) {}

  const T* panel(int index) const { return data.data() + static_cast<size_t>(index) * depth * width; }
  int padded() const { return panels * width; }

  // Puts `source`, `rows` x `cols` row by row, at (first_depth, first_column), transposed: its columns run along depth.
  void put_transposed(const T* source, int rows, int cols, int first_depth, int first_column) {
    for (int j = 0; j < rows; ++j) {
      const int column = first_column + j;
      T* target = data.data() + (static_cast<size_t>(column / width) * depth + first_depth) * width + column % width;
      for (int k = 0; k < cols; ++k) target[static_cast<size_t>(k) * width] = source[static_cast<size_t>(j) * cols + k];
    }
  }

  // Puts `source`, `rows` x `cols` row by row, at (first_depth, first_column) as it is: its rows run along depth.
  void put(const T* source, int rows, int cols, int first_depth, int first_column) {
    for (int k = 0; k < rows; ++k)
      for (int j = 0; j < cols; ++j) {
        const int column = first_column + j;
        data[(static_cast<size_t>(column / width) * depth + first_depth + k) * width + column % width] =
            source[static_cast<size_t>(k) * cols + j];
      }
  }
};

// out[r][panels of columns] = start[r][...] + a[r][0..depth) * matrix, for `Rows` rows and `Panels` adjacent panels whose
// sums all stay in registers. `start` may be null for zero, and may be `out`.
template <typename T, int Rows, int Panels>
inline void tile(const T* const* a, const T* panel, size_t stride, int depth, const T* const* start, T* const* out,
                 int column) {
  constexpr int lanes = Simd<T>::lanes, vectors = 2 * Panels;
  Vector<T> sums[Rows][vectors];
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) sums[r][v] = start ? load(start[r] + column + v * lanes) : Vector<T>{};
  const T* rows[Rows];
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r) rows[r] = a[r];
  for (int k = 0; k < depth; ++k) {
    Vector<T> b[vectors];
    RRU_UNROLL
    for (int v = 0; v < vectors; ++v) b[v] = load(panel + (v / 2) * stride + (v % 2) * lanes);
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const T scalar = rows[r][k];
      RRU_UNROLL
      for (int v = 0; v < vectors; ++v) sums[r][v] += scalar * b[v];
    }
    panel += 2 * lanes;
  }
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) store(out[r] + column + v * lanes, sums[r][v]);
}

template <typename T, int Panels>
inline void tile_of(int rows, const T* const* a, const T* panel, size_t stride, int depth, const T* const* start,
                    T* const* out, int column) {
  switch (rows) {
    case 1: return tile<T, 1, Panels>(a, panel, stride, depth, start, out, column);
    case 2: return tile<T, 2, Panels>(a, panel, stride, depth, start, out, column);
    case 3: return tile<T, 3, Panels>(a, panel, stride, depth, start, out, column);
    case 4: return tile<T, 4, Panels>(a, panel, stride, depth, start, out, column);
    case 5: return tile<T, 5, Panels>(a, panel, stride, depth, start, out, column);
    default: return tile<T, 6, Panels>(a, panel, stride, depth, start, out, column);
  }
}

// Which part of a product a thread does: the index-th of `size` equal parts.
struct Share {
  int index, size;
  int first(int of) const { return static_cast<int>(static_cast<int64_t>(of) * index / size); }
  int last(int of) const { return static_cast<int>(static_cast<int64_t>(of) * (index + 1) / size); }
};

// out[r] = start[r] + a[r] * matrix for r < rows, each row given by its address, in this share of the columns; `out` and
// `start` rows must be `padded()` wide.
template <typename T>
void multiply(const T* const* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out, Share share) {
  constexpr int width = Packed<T>::width;
  const size_t stride = static_cast<size_t>(matrix.depth) * width;
  const int tiles = (rows + 5) / 6;  // as even as possible: 8 rows are 4 + 4, not 6 + 2
  const int end = share.last(matrix.panels);
  for (int p = share.first(matrix.panels); p < end;) {
    const bool pair = rows <= 3 && p + 1 < end;  // few rows: two panels, to have enough sums under way
    for (int i = 0, first = 0; i < tiles; ++i) {
      const int count = (rows - first + tiles - i - 1) / (tiles - i);
      const T* const* from = start ? start + first : nullptr;
      if (pair)
        tile_of<T, 2>(count, a + first, matrix.panel(p), stride, matrix.depth, from, out + first, p * width);
      else
        tile_of<T, 1>(count, a + first, matrix.panel(p), stride, matrix.depth, from, out + first, p * width);
      first += count;
    }
    p += pair ? 2 : 1;
  }
}

// The entries of a row that are not zero, in ascending order.
template <typename T>
struct SparseRow {
  std::vector<int> index;
  std::vector<T> value;
  int count = 0;

  void reserve(int size) { index.resize(size + 1), value.resize(size + 1); }

  void collect(const T* row, int size) {
    int* positions = index.data();
    T* entries = value.data();
    int next = 0;
    for (int i = 0; i < size; ++i) {  // without a branch: an entry that is zero is overwritten by the next
      positions[next] = i, entries[next] = row[i];
      next += row[i] != 0;
    }
    count = next;
  }
};

// Where the entries of each row fall among blocks of `block` positions: bounds[r * (blocks + 1) + b] is the first of
// row r's entries in block b.
template <typename T>
std::vector<int> block_bounds(const SparseRow<T>* const* rows, int count, int block, int blocks) {
  std::vector<int> bounds(static_cast<size_t>(count) * (blocks + 1));
  for (int r = 0; r < count; ++r) {
    int* row = bounds.data() + static_cast<size_t>(r) * (blocks + 1);
    int i = 0;
    for (int b = 0; b <= blocks; ++b) {
      while (i < rows[r]->count && rows[r]->index[i] < b * block) ++i;
      row[b] = i;
    }
  }
  return bounds;
}

// out[r] = start[r] + a[r] * matrix, where only the entries of a[r] that are not zero cost anything.
// The matrix is used block by block, small enough for the first-level cache and shared by all rows.
template <typename T>
void multiply_sparse(const SparseRow<T>* const* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out,
                     Share share) {
  constexpr int lanes = Simd<T>::lanes, width = Packed<T>::width, panels = 4, vectors = 2 * panels, block = 64;
  const size_t stride = static_cast<size_t>(matrix.depth) * width;
  const int blocks = (matrix.depth + block - 1) / block;
  const std::vector<int> bounds = block_bounds(a, rows, block, blocks);
  const int end = share.last(matrix.panels);
  for (int p = share.first(matrix.panels); p < end; p += panels) {
    const int present = end - p < panels ? end - p : panels;
    const T* base = matrix.panel(p);
    for (int b = 0; b < blocks; ++b) {
      for (int r = 0; r < rows; ++r) {
        const T* before = b == 0 ? start[r] : out[r];
        const int* index = a[r]->index.data();
        const T* value = a[r]->value.data();
        const int* bound = bounds.data() + static_cast<size_t>(r) * (blocks + 1) + b;
        const int from = bound[0], to = bound[1];
        if (present == panels) {
          Vector<T> sums[vectors];
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) sums[v] = load(before + p * width + v * lanes);
          for (int i = from; i < to; ++i) {
            const T* line = base + static_cast<size_t>(index[i]) * width;
            const T scalar = value[i];
            RRU_UNROLL
            for (int v = 0; v < vectors; ++v) sums[v] += scalar * load(line + (v / 2) * stride + (v % 2) * lanes);
          }
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) store(out[r] + p * width + v * lanes, sums[v]);
        } else {
          for (int q = 0; q < present; ++q) {
            const int column = (p + q) * width;
            Vector<T> low = load(before + column), high = load(before + column + lanes);
            for (int i = from; i < to; ++i) {
              const T* line = base + q * stride + static_cast<size_t>(index[i]) * width;
              low += value[i] * load(line), high += value[i] * load(line + lanes);
            }
            store(out[r] + column, low), store(out[r] + column + lanes, high);
          }
        }
      }
    }
  }
}

// result[r][i] = a[r] . matrix row at[r]->index[i]: those entries of a * transposed(matrix) that are asked for, in this
// share of the matrix's rows.
// Rows of `a` must be `padded()` wide, zero after the matrix's columns.
template <typename T>
void multiply_at(const T* const* a, int rows, const Packed<T>& matrix, const SparseRow<T>* const* at, T* const* result,
                 Share share) {
  constexpr int lanes = Simd<T>::lanes, width = Packed<T>::width, panels = 16, block = 16;
  const size_t stride = static_cast<size_t>(matrix.depth) * width;
  const int blocks = (matrix.depth + block - 1) / block;
  const std::vector<int> bounds = block_bounds(at, rows, block, blocks);
  const int begin = share.first(blocks), end = share.last(blocks);
  for (int r = 0; r < rows; ++r) {
    const int* bound = bounds.data() + static_cast<size_t>(r) * (blocks + 1);
    std::memset(result[r] + bound[begin], 0, sizeof(T) * (bound[end] - bound[begin]));
  }
  for (int p = 0; p < matrix.panels; p += panels) {
    const int present = matrix.panels - p < panels ? matrix.panels - p : panels;
    const T* base = matrix.panel(p);
    for (int b = begin; b < end; ++b) {
      for (int r = 0; r < rows; ++r) {
        const T* row = a[r] + p * width;
        const int* index = at[r]->index.data();
        const int* bound = bounds.data() + static_cast<size_t>(r) * (blocks + 1) + b;
        const int to = bound[1];
        int i = bound[0];
        for (; i + 1 < to; i += 2) {
          const T* one = base + static_cast<size_t>(index[i]) * width;
          const T* two = base + static_cast<size_t>(index[i + 1]) * width;
          Vector<T> sums[4] = {};
          for (int q = 0; q < present; ++q) {
            const Vector<T> low = load(row + q * width), high = load(row + q * width + lanes);
            sums[0] += low * load(one + q * stride), sums[1] += high * load(one + q * stride + lanes);
            sums[2] += low * load(two + q * stride), sums[3] += high * load(two + q * stride + lanes);
          }
          result[r][i] += sum<T>(sums[0] + sums[1]), result[r][i + 1] += sum<T>(sums[2] + sums[3]);
        }
        for (; i < to; ++i) {
          const T* line = base + static_cast<size_t>(index[i]) * width;
          Vector<T> low{}, high{};
          for (int q = 0; q < present; ++q) {
            low += load(row + q * width) * load(line + q * stride);
            high += load(row + q * width + lanes) * load(line + q * stride + lanes);
          }
          result[r][i] += sum<T>(low + high);
        }
      }
    }
  }
}
}  // namespace rru::RRU_ISA
