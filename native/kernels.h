// Products of a few rows with a large matrix that is packed once and used at every time step.
//
// Compiled once for each instruction set (see setup.py): RRU_ISA names the namespace, RRU_VECTOR_BYTES is the register's
// width. Vectors are the compiler's own (GCC and Clang have them), so that one text serves SSE, AVX2, AVX-512 and NEON.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
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
  constexpr int lanes = Simd<T>::lanes;
  T parts[lanes];
  std::memcpy(parts, &v, sizeof v);
  RRU_UNROLL
  for (int half = lanes / 2; half > 0; half /= 2)
    RRU_UNROLL
  for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

inline int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

// A matrix of `depth` x `columns` in panels of `width` columns, each panel contiguous: element (k, j) is at
// [j / width][k][j % width]. The last panel is filled up with zeros.
//
// Packing costs as much as a few rows' product; `packed` false leaves the matrix where it lies, in the blocks that
// `put_transposed` was given.
template <typename T>
struct Packed {
  static constexpr int width = 2 * Simd<T>::lanes;

  struct Block {
    const T* source;
    int rows, cols, first_depth, first_column;
  };

  int depth, columns, panels;
  bool packed;
  std::unique_ptr<T[]> data;
  std::vector<Block> blocks;

  Packed(int depth, int columns, bool packed = true)
      : depth(depth),
        columns(columns),
        panels(round_up(columns, width) / width),
        packed(packed),
        data(packed ? new T[size()] : nullptr) {
    const int present = columns - (panels - 1) * width;
    for (int k = 0; packed && k < depth; ++k) std::fill_n(at(k, (panels - 1) * width) + present, width - present, T(0));
  }

  size_t size() const { return static_cast<size_t>(panels) * depth * width; }
  const T* panel(int index) const { return data.get() + static_cast<size_t>(index) * depth * width; }
  T* at(int k, int column) const {
    return data.get() + (static_cast<size_t>(column / width) * depth + k) * width + column % width;
  }
  int padded() const { return panels * width; }
  size_t bytes() const { return sizeof(T) * depth * static_cast<size_t>(columns); }

  // Puts `source`, `rows` x `cols` row by row, at (first_depth, first_column), transposed: its columns run along depth.
  void put_transposed(const T* source, int rows, int cols, int first_depth, int first_column) {
    if (!packed) return blocks.push_back({source, rows, cols, first_depth, first_column});
    for (int j = 0; j < rows;) {  // as many rows together as go into one panel
      const int column = first_column + j, together = std::min(rows - j, width - column % width);
      const T* from = source + static_cast<size_t>(j) * cols;
      for (int k = 0; k < cols; ++k) {
        T* target = at(first_depth + k, column);
        for (int i = 0; i < together; ++i) target[i] = from[static_cast<size_t>(i) * cols + k];
      }
      j += together;
    }
  }

  // Puts `source`, `rows` x `cols` row by row, at (first_depth, first_column) as it is: its rows run along depth.
  void put(const T* source, int rows, int cols, int first_depth, int first_column) {
    for (int j = 0; j < cols;) {
      const int column = first_column + j, together = std::min(cols - j, width - column % width);
      for (int k = 0; k < rows; ++k)
        std::copy_n(source + static_cast<size_t>(k) * cols + j, together, at(first_depth + k, column));
      j += together;
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

// `Count` inner products of `row` with rows of a matrix, the first at `lines`, each `size` wide; added to `sums`.
template <typename T, int Count>
inline void inner_products(const T* row, const T* lines, int size, T* sums) {
  constexpr int lanes = Simd<T>::lanes;
  Vector<T> totals[Count][2] = {};
  int k = 0;
  for (; k + 2 * lanes <= size; k += 2 * lanes) {
    const Vector<T> low = load(row + k), high = load(row + k + lanes);
    RRU_UNROLL
    for (int i = 0; i < Count; ++i) {
      const T* line = lines + static_cast<size_t>(i) * size + k;
      totals[i][0] += low * load(line), totals[i][1] += high * load(line + lanes);
    }
  }
  if (k + lanes <= size) {
    const Vector<T> low = load(row + k);
    RRU_UNROLL
    for (int i = 0; i < Count; ++i) totals[i][0] += low * load(lines + static_cast<size_t>(i) * size + k);
    k += lanes;
  }
  T rest[Count] = {};
  for (; k < size; ++k)
    RRU_UNROLL
  for (int i = 0; i < Count; ++i) rest[i] += row[k] * lines[static_cast<size_t>(i) * size + k];
  RRU_UNROLL
  for (int i = 0; i < Count; ++i) sums[i] += sum<T>(totals[i][0] + totals[i][1]) + rest[i];
}

// `multiply` with a matrix that is not packed.
template <typename T>
void multiply_unpacked(const T* const* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out,
                       Share share) {
  const int begin = share.first(matrix.columns), end = share.last(matrix.columns);
  for (int r = 0; r < rows; ++r) {
    if (!start) std::fill(out[r] + begin, out[r] + end, T(0));
    else if (start[r] != out[r]) std::copy(start[r] + begin, start[r] + end, out[r] + begin);
  }
  for (const auto& block : matrix.blocks) {
    const int last = std::min(end, block.first_column + block.rows);
    int column = std::max(begin, block.first_column);
    auto run = [&](auto count) {
      for (; column + count() <= last; column += count())
        for (int r = 0; r < rows; ++r)
          inner_products<T, count()>(a[r] + block.first_depth,
                                     block.source + static_cast<size_t>(column - block.first_column) * block.cols,
                                     block.cols, out[r] + column);
    };
    run(std::integral_constant<int, 4>()), run(std::integral_constant<int, 1>());
  }
}

// out[r] = start[r] + a[r] * matrix for r < rows, each row given by its address, in this share of the columns; `out` and
// `start` rows must be `padded()` wide.
template <typename T>
void multiply(const T* const* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out, Share share) {
  if (!matrix.packed) return multiply_unpacked<T>(a, rows, matrix, start, out, share);
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

}  // namespace rru::RRU_ISA
