// Products of a few rows with a large matrix. The matrix is packed once and used at every time step.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "memory.h"
#include "simd.h"
#include "transpose.h"

namespace rru::RRU_ISA {

// A matrix of `depth` x `columns`, with a bias of `columns`, in panels of `width` columns. Each panel is contiguous:
// element (k, j) is at [j / width][k][j % width]. The last panel and the bias are padded with zeros.
//
// Packing takes as long as multiplying a few rows. If `packed` is false, the matrix is not copied: products read the
// blocks passed to `put_transposed`.
template <typename T>
struct Packed {
  static constexpr int width = 2 * Simd<T>::lanes;

  struct Block {
    const T* source;
    int rows, cols, first_depth, first_column;
  };

  int depth, columns, panels;
  bool packed, halves = false;  // `halves`: the data are pairs of bfloat16, see bfloat16.h
  Buffer<T> data;
  Buffer<T> bias;  // (padded(),)
  std::vector<Block> blocks;

  Packed(int depth, int columns, bool packed = true)
      : depth(depth),
        columns(columns),
        panels(round_up(columns, width) / width),
        packed(packed),
        data(packed ? size() : 0),
        bias(padded(), T(0)) {
    const int present = columns - (panels - 1) * width;
    for (int k = 0; packed && k < depth; ++k) std::fill_n(at(k, (panels - 1) * width) + present, width - present, T(0));
  }

  size_t size() const { return static_cast<size_t>(panels) * depth * width; }
  size_t stride() const { return static_cast<size_t>(depth) * width; }  // from one panel to the next
  const T* panel(int index) const { return data.get() + index * stride(); }
  T* at(int k, int column) const {
    return data.get() + (static_cast<size_t>(column / width) * depth + k) * width + column % width;
  }
  int padded() const { return panels * width; }
  size_t bytes() const { return sizeof(T) * depth * static_cast<size_t>(columns) / (halves ? 2 : 1); }
  const uint32_t* pairs() const { return reinterpret_cast<const uint32_t*>(data.get()); }
  // Lines of pairs in a panel: whole tiles (tiles.h), if the memory of the values has room for them.
  int pair_lines() const { return depth < 16 ? (depth + 1) / 2 : round_up(depth, 32) / 2; }
  size_t pair_stride() const { return static_cast<size_t>(pair_lines()) * width; }

  void put_bias(const T* source, int size, int first_column) {
    std::copy_n(source, size, bias.get() + first_column);
  }

  // Copy `source`, a row-major `rows` x `cols` matrix, transposed to (first_depth, first_column). Its rows may be longer
  // than `cols`, `row_size`, if the matrix is packed.
  void put_transposed(const T* source, int rows, int cols, int first_depth, int first_column, int row_size = 0) {
    if (!packed) return blocks.push_back({source, rows, cols, first_depth, first_column});
    row_size = std::max(row_size, cols);
    for (int j = 0; j < rows;) {  // as many rows at a time as fit into one panel
      const int column = first_column + j, together = std::min(rows - j, width - column % width);
      const T* from = source + static_cast<size_t>(j) * row_size;
      constexpr int line = 64 / sizeof(T);  // reads whole cache lines: one column of all rows may not fit the cache
      for (int first = 0; first < cols; first += line) {
        const int present = std::min(line, cols - first);
        transpose(from + first, row_size, together, present, at(first_depth + first, column), width);
      }
      j += together;
    }
  }

  // Copy `source`, a row-major `rows` x `cols` matrix, to (first_depth, first_column) without transposing it.
  void put(const T* source, int rows, int cols, int first_depth, int first_column) {
    for (int j = 0; j < cols;) {
      const int column = first_column + j, together = std::min(cols - j, width - column % width);
      for (int k = 0; k < rows; ++k)
        std::copy_n(source + static_cast<size_t>(k) * cols + j, together, at(first_depth + k, column));
      j += together;
    }
  }
};

// The rows that a product is added to: one for each row (step 1), or the same for all (step 0).
template <typename T>
struct Start {
  const T* const* rows;
  int step;
  const T* operator[](int r) const { return rows[r * step]; }
  Start from(int first) const { return {rows + first * step, step}; }
};

// What the tiles of one panel fetch into the L2 cache meanwhile: the next panel, a part each. The processor would fetch
// it only when the next panel's first tile reads it, which would then wait for every line.
class Ahead {
 public:
  Ahead() = default;  // fetches nothing
  // `bytes` from `next` on are divided among `tiles` tiles, each of which reads `depth` lines.
  Ahead(const void* next, size_t bytes, int depth, int tiles) : together_(16), at_(static_cast<const char*>(next)) {
    const size_t blocks = static_cast<size_t>(depth + together_ - 1) / together_ * tiles;
    each_ = static_cast<int>((bytes / kCacheLine + blocks - 1) / blocks);
    end_ = at_ + bytes;
  }
  // Return where the next block of lines ends. After each block a few lines are fetched.
  int block_end(int line, int depth) const { return std::min(depth, line + together_); }
  void fetch() {
    for (int i = 0; i < each_ && at_ < end_; ++i, at_ += kCacheLine) __builtin_prefetch(at_, 0, 2);
  }

 private:
  int together_ = 1 << 28;
  const char *at_ = nullptr, *end_ = nullptr;
  int each_ = 0;
};
constexpr size_t kMinAheadBytes = 1 << 20;  // smaller ones are near enough, and the processor can read them ahead

// Compute out[r][columns] = start[r][columns] + a[r][0..depth) * matrix for `Rows` rows and the columns of `Panels`
// adjacent panels. Keep all sums in registers. `start` may be `out`.
template <typename T, int Rows, int Panels>
inline void tile(const T* const* a, const Packed<T>& matrix, int p, Start<T> start, T* const* out, Ahead& ahead) {
  constexpr int lanes = Simd<T>::lanes, vectors = 2 * Panels;
  const size_t stride = matrix.stride();
  const int depth = matrix.depth, column = p * matrix.width;
  const T* panel = matrix.panel(p);
  Vector<T> sums[Rows][vectors];
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) sums[r][v] = load(start[r] + column + v * lanes);
  const T* rows[Rows];
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r) rows[r] = a[r];
  for (int k = 0; k < depth;) {
    ahead.fetch();
    for (const int stop = ahead.block_end(k, depth); k < stop; ++k) {
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
  }
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) store(out[r] + column + v * lanes, sums[r][v]);
}

template <typename T, int Panels>
inline void tile_of(int rows, const T* const* a, const Packed<T>& matrix, int p, Start<T> start, T* const* out,
                    Ahead& ahead) {
  switch (rows) {
    case 1: return tile<T, 1, Panels>(a, matrix, p, start, out, ahead);
    case 2: return tile<T, 2, Panels>(a, matrix, p, start, out, ahead);
    case 3: return tile<T, 3, Panels>(a, matrix, p, start, out, ahead);
    case 4: return tile<T, 4, Panels>(a, matrix, p, start, out, ahead);
    case 5: return tile<T, 5, Panels>(a, matrix, p, start, out, ahead);
    default: return tile<T, 6, Panels>(a, matrix, p, start, out, ahead);
  }
}

// A thread's share of a product: number `index` of `size` equal parts.
struct Share {
  int index, size;
  int first(int of) const { return static_cast<int>(static_cast<int64_t>(of) * index / size); }
  int last(int of) const { return static_cast<int>(static_cast<int64_t>(of) * (index + 1) / size); }
};

// Add to `sums` the inner products of `row` with `Count` rows of a matrix, each `size` wide, the first at `lines`.
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

// `multiply` for a matrix that is not packed.
template <typename T>
void multiply_unpacked(const T* const* a, int rows, const Packed<T>& matrix, Start<T> start, T* const* out, Share share) {
  const int begin = share.first(matrix.columns), end = share.last(matrix.columns);
  for (int r = 0; r < rows; ++r)
    if (start[r] != out[r]) std::copy(start[r] + begin, start[r] + end, out[r] + begin);
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

// Compute out[r] = start[r] + a[r] * matrix for r < rows, in this share of the columns. Rows are given by address;
// those of `out` and `start` must be `padded()` wide. If `start` is null, the matrix's bias is used.
template <typename T>
void multiply(const T* const* a, int rows, const Packed<T>& matrix, const T* const* start, T* const* out, Share share) {
  const T* const bias = matrix.bias.get();
  const Start<T> starts = start ? Start<T>{start, 1} : Start<T>{&bias, 0};
  if (!matrix.packed) return multiply_unpacked<T>(a, rows, matrix, starts, out, share);
  const int tiles = (rows + 5) / 6;  // split evenly: 8 rows are 4 + 4, not 6 + 2
  const int end = share.last(matrix.panels);
  for (int p = share.first(matrix.panels); p < end;) {
    const bool pair = rows <= 3 && p + 1 < end;  // few rows: use two panels to keep enough sums in flight
    const bool more = p + 2 * (1 + pair) <= end && matrix.bytes() >= kMinAheadBytes;
    Ahead ahead;
    if (more) ahead = {matrix.panel(p + 1 + pair), (1 + pair) * matrix.stride() * sizeof(T), matrix.depth, tiles};
    for (int i = 0, first = 0; i < tiles; ++i) {
      const int count = (rows - first + tiles - i - 1) / (tiles - i);
      if (pair)
        tile_of<T, 2>(count, a + first, matrix, p, starts.from(first), out + first, ahead);
      else
        tile_of<T, 1>(count, a + first, matrix, p, starts.from(first), out + first, ahead);
      first += count;
    }
    p += pair ? 2 : 1;
  }
}
}  // namespace rru::RRU_ISA
