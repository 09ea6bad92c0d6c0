// The gradient of a large matrix in bfloat16, by AMX or AVX512_BF16: rounded factors, float32 sums. Without these
// instructions the gradients of large layers are float32 products (dense_gradient.h).
#pragma once
#include <algorithm>
#include <vector>

#include "arguments.h"
#include "bfloat16.h"
#include "threads.h"

#if defined(RRU_DOTS)
namespace rru::RRU_ISA {

// Compute the sum over all tokens of a[token][r] * b[token][c]. Tokens whose row of `a` is zero, such as those past the
// end of a sequence, are left out. The others are processed in blocks; of each, `a` and `b` are stored in pairs of tokens,
// in strips of as many columns as a tile takes, so that a tile reads both in order.
template <typename T>
struct MatrixGradient {
  static constexpr int block = 1024;

  const int tokens, rows, columns, split;
  const bool relu;   // whether `b` is taken through a ReLU
  const bool tiles;  // whether to use AMX
  const T *a, *b;    // (tokens, rows), (tokens, columns)
  T *left, *right;   // (rows, split), (rows, columns - split): the result, cut after column `split`
  std::vector<int> live;              // the tokens that count
  Buffer<uint32_t> pairs_a, pairs_b;  // (strips, block / 2, columns of a strip); with AMX, `a` tile by tile

  explicit MatrixGradient(Arguments& in)
      : tokens(in.between("tokens", 0, kMostTokens)),
        rows(in.size("rows")),
        columns(in.size("columns")),
        split(in.between("split", 0, columns)),
        relu(in.flag("relu")),
        tiles(has_bfloat16_tiles()),
        a(in.tensor<const T>("a", {tokens, rows})),
        b(in.tensor<const T>("b", {tokens, columns})),
        left(in.tensor<T>("left", {rows, split})),
        right(in.tensor<T>("right", {rows, columns - split})),
        pairs_a(static_cast<size_t>(round_up(rows, 32)) * (block / 2)),
        pairs_b(static_cast<size_t>(round_up(columns, 96)) * (block / 2)) {
    if (!has_bfloat16_dots()) throw Mismatch("this processor lacks AVX512_BF16");
    live.reserve(tokens);
    for (int token = 0; token < tokens; ++token) {
      const T* row = a + static_cast<size_t>(token) * rows;
      if (std::any_of(row, row + rows, [](T value) { return value != 0; })) live.push_back(token);
    }
  }
};

// Store rows of `size` values in pairs, in `lines` lines for this share of them. `row_of` gives the rows by number; past the
// last one it gives null, which stands for zeros.
template <int Width, typename RowOf>
void pair_rows(const RowOf& row_of, int size, bool relu, int lines, Share share, uint32_t* pairs) {
  constexpr int lanes = Simd<float>::lanes, part = Width < lanes ? Width : lanes;
  const Vector<float> zero{};
  const int end = share.last(lines);
  for (int i = share.first(lines); i < end; ++i) {
    const float *low = row_of(2 * i), *high = row_of(2 * i + 1);
    for (int c = 0; c < size; c += lanes) {
      const int present = std::min(lanes, size - c);
      auto read = [&](const float* row) {
        const Vector<float> found = !row ? zero : present == lanes ? load(row + c) : load_some(row + c, present);
        return round_to_bfloat16(relu ? found < zero ? zero : found : found);
      };
      const Bits pair = (read(high) & kUpper) | (read(low) >> 16);
      for (int k = 0; k < present; k += part) {
        const size_t strip = (c + k) / Width;
        uint32_t* target = pairs + (strip * lines + i) * Width + (c + k) % Width;
        std::memcpy(target, reinterpret_cast<const uint32_t*>(&pair) + k, part * sizeof(uint32_t));
      }
    }
  }
}

// The same for some tokens of a (tokens, size) matrix.
template <int Width>
void pair_tokens(const float* from, int size, const int* tokens, int count, bool relu, int lines, Share share,
                 uint32_t* pairs) {
  auto row_of = [&](int place) { return place < count ? from + static_cast<size_t>(tokens[place]) * size : nullptr; };
  pair_rows<Width>(row_of, size, relu, lines, share, pairs);
}

// Compute sums[r][c], the dot products of a strip of `a` and a strip of `b`.
template <int Rows, int Columns>
RRU_DOTS void gradient_tile(const uint32_t* a, const uint32_t* b, int lines, float* sums) {
  constexpr int lanes = Simd<float>::lanes, vectors = Columns / lanes;
  __m512 totals[Rows][vectors];
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) totals[r][v] = _mm512_setzero_ps();
  for (int i = 0; i < lines; ++i, a += Rows, b += Columns) {
    __m512i line[vectors];
    RRU_UNROLL
    for (int v = 0; v < vectors; ++v) line[v] = _mm512_loadu_si512(b + v * lanes);
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const __m512i pair = _mm512_set1_epi32(static_cast<int>(a[r]));
      RRU_UNROLL
      for (int v = 0; v < vectors; ++v) totals[r][v] = _mm512_dpbf16_ps(totals[r][v], (__m512bh)pair, (__m512bh)line[v]);
    }
  }
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(sums + r * Columns + v * lanes, totals[r][v]);
}

// Add `count` sums to `out`, or with `begin` store them.
inline void put_sums(const float* sums, int count, bool begin, float* out) {
  for_each<float>(count, [&](auto load, auto store) { store(out, begin ? load(sums) : load(out) + load(sums)); });
}

// How a block of tokens is multiplied by dot products: `height` x `width` sums at a time.
struct GradientDots {
  struct InUse {};
  static constexpr int height = 8, width = 48, together = width;  // a strip of `a` takes 16 kB, of `b` 96 kB

  static int lines(int tokens) { return (tokens + 1) / 2; }
  static void pack_rows(const MatrixGradient<float>& call, const int* tokens, int count, Share share) {
    pair_tokens<height>(call.a, call.rows, tokens, count, false, lines(count), share, call.pairs_a.get());
  }
  static void multiply(const MatrixGradient<float>& call, int row, int column, int lines, float* sums) {
    gradient_tile<height, width>(call.pairs_a.get() + static_cast<size_t>(row) * lines,
                                 call.pairs_b.get() + static_cast<size_t>(column) * lines, lines, sums);
  }
};

#if defined(RRU_TILES)
// The same by AMX.
struct GradientTiles {
  using InUse = TilesInUse;
  static constexpr int height = 2 * kTile, width = 2 * kTile, together = 16 * width;  // 1 MB of `b`, for the L2 cache

  static int lines(int tokens) { return round_up(tokens, kTileDepth) / 2; }
  // In a left tile, lines and columns change places.
  static void pack_rows(const MatrixGradient<float>& call, const int* tokens, int count, Share share) {
    const int depth = lines(count) / kTile, strips = round_up(call.rows, kTile) / kTile;
    Buffer<uint32_t> lines_of_strips(static_cast<size_t>(strips) * kTile * kTile);
    const auto floats = [](uint32_t* pairs) { return reinterpret_cast<float*>(pairs); };
    for (int i = share.first(depth); i < share.last(depth); ++i) {
      const int first = i * kTileDepth, present = std::min(kTileDepth, count - first);
      pair_tokens<kTile>(call.a, call.rows, tokens + first, present, false, kTile, {0, 1}, lines_of_strips.get());
      for (size_t strip = 0; strip < static_cast<size_t>(strips); ++strip)
        transpose(floats(lines_of_strips.get() + strip * kTile * kTile), kTile, kTile, kTile,
                  floats(call.pairs_a.get() + (strip * depth + i) * kTile * kTile), kTile);
    }
  }
  static void multiply(const MatrixGradient<float>& call, int row, int column, int lines, float* sums) {
    constexpr size_t line = width * sizeof(uint32_t);
    const size_t depth = lines / kTile;
    const auto at = [&](const Buffer<uint32_t>& pairs, int strip) {
      return reinterpret_cast<const char*>(pairs.get() + static_cast<size_t>(strip) * lines);
    };
    Ahead nothing;
    multiply_2_by_2({at(call.pairs_a, row), kCacheLine, kTileBytes, depth * kTileBytes},
                    {at(call.pairs_b, column), line, kTile * line, kCacheLine}, depth, sums, nothing);
  }
};
#else
using GradientTiles = GradientDots;  // never called
#endif

// Add the products of one block of tokens to the result, or begin with them, for this share of the rows.
template <typename Kernel>
void add_block(const MatrixGradient<float>& call, int lines, bool begin, Share share) {
  constexpr int height = Kernel::height, width = Kernel::width;
  alignas(kCacheLine) float sums[height * width];
  [[maybe_unused]] const typename Kernel::InUse in_use;
  const int groups = round_up(call.rows, height) / height, right = call.columns - call.split;
  auto add = [&](int first, int c) {
    Kernel::multiply(call, first, c, lines, sums);
    const int end = std::min(c + width, call.columns);
    const int cut = std::clamp(call.split, c, end);  // columns before it belong to `left`
    for (int r = 0; r < height && first + r < call.rows; ++r) {
      const size_t row = first + r;
      const float* found = sums + r * width;
      if (cut > c) put_sums(found, cut - c, begin, call.left + row * call.split + c);
      if (end > cut) put_sums(found + cut - c, end - cut, begin, call.right + row * right + cut - call.split);
    }
  };
  for (int some = 0; some < call.columns; some += Kernel::together)
    for (int group = share.first(groups); group < share.last(groups); ++group)
      for (int c = some; c < std::min(some + Kernel::together, call.columns); c += width) add(group * height, c);
}

template <typename Kernel>
void add_blocks(const MatrixGradient<float>& call, int threads) {
  constexpr int most = MatrixGradient<float>::block;
  const int tokens = static_cast<int>(call.live.size());
  for (int first = 0; first < tokens; first += most) {
    const int count = std::min(most, tokens - first), lines = Kernel::lines(count);
    const int* chosen = call.live.data() + first;
    auto pack = [&](int thread) {
      const Share share{thread, threads};
      Kernel::pack_rows(call, chosen, count, share);
      pair_tokens<Kernel::width>(call.b, call.columns, chosen, count, call.relu, lines, share, call.pairs_b.get());
    };
    in_parallel(threads, pack, [] {});
    in_parallel(threads, [&](int thread) { add_block<Kernel>(call, lines, first == 0, {thread, threads}); }, [] {});
  }
}

inline void run(MatrixGradient<float>& call, int threads) {
  if (call.live.empty()) {
    std::fill_n(call.left, static_cast<size_t>(call.rows) * call.split, 0.0f);
    std::fill_n(call.right, static_cast<size_t>(call.rows) * (call.columns - call.split), 0.0f);
  }
  if (call.tiles)
    add_blocks<GradientTiles>(call, threads);
  else
    add_blocks<GradientDots>(call, threads);
}
}  // namespace rru::RRU_ISA
#endif
