// The gradient of a large matrix in bfloat16, by AVX512_BF16: rounded factors, float32 sums. Without these instructions
// the gradients of large layers are float32 products (dense_gradient.h).
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
  static constexpr int tile_rows = 8, tile_columns = 48, block = 1024;  // a strip of `a` takes 16 kB, of `b` 96 kB

  const int tokens, rows, columns, split;
  const bool relu;   // whether `b` is taken through a ReLU
  const T *a, *b;    // (tokens, rows), (tokens, columns)
  T *left, *right;   // (rows, split), (rows, columns - split): the result, cut after column `split`
  std::vector<int> live;              // the tokens that count
  Buffer<uint32_t> pairs_a, pairs_b;  // (strips, block / 2, columns of a strip)

  explicit MatrixGradient(Arguments& in)
      : tokens(in.between("tokens", 0, kMostTokens)),
        rows(in.size("rows")),
        columns(in.size("columns")),
        split(in.between("split", 0, columns)),
        relu(in.flag("relu")),
        a(in.tensor<const T>("a", {tokens, rows})),
        b(in.tensor<const T>("b", {tokens, columns})),
        left(in.tensor<T>("left", {rows, split})),
        right(in.tensor<T>("right", {rows, columns - split})),
        pairs_a(strips_of(rows, tile_rows) * tile_rows * (block / 2)),
        pairs_b(strips_of(columns, tile_columns) * tile_columns * (block / 2)) {
    if (!has_bfloat16_dots()) throw Mismatch("this processor lacks AVX512_BF16");
    live.reserve(tokens);
    for (int token = 0; token < tokens; ++token) {
      const T* row = a + static_cast<size_t>(token) * rows;
      if (std::any_of(row, row + rows, [](T value) { return value != 0; })) live.push_back(token);
    }
  }
  static size_t strips_of(int size, int width) { return (size + width - 1) / width; }
};

// Store some tokens of a (tokens, size) matrix in pairs, for this share of the pairs.
template <int Width>
void pair_tokens(const float* from, int size, const int* tokens, int count, bool relu, Share share, uint32_t* pairs) {
  constexpr int lanes = Simd<float>::lanes, part = Width < lanes ? Width : lanes;
  const Vector<float> zero{};
  const int lines = (count + 1) / 2, end = share.last(lines);
  for (int i = share.first(lines); i < end; ++i) {
    auto row_of = [&](int place) { return from + static_cast<size_t>(tokens[place]) * size; };
    const float* low = row_of(2 * i);
    const float* high = 2 * i + 1 < count ? row_of(2 * i + 1) : nullptr;  // the last of an odd number pairs with zeros
    for (int c = 0; c < size; c += lanes) {
      const int present = std::min(lanes, size - c);
      auto read = [&](const float* row) {
        const Vector<float> found = present == lanes ? load(row + c) : load_some(row + c, present);
        return relu ? found < zero ? zero : found : found;
      };
      const Bits above = high ? round_to_bfloat16(read(high)) & kUpper : Bits{};
      const Bits pair = above | (round_to_bfloat16(read(low)) >> 16);
      for (int k = 0; k < present; k += part) {
        const size_t strip = (c + k) / Width;
        uint32_t* target = pairs + (strip * lines + i) * Width + (c + k) % Width;
        std::memcpy(target, reinterpret_cast<const uint32_t*>(&pair) + k, part * sizeof(uint32_t));
      }
    }
  }
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

// Add the products of one block of tokens to the result, or begin with them, for this share of the rows.
inline void add_block(const MatrixGradient<float>& call, int lines, bool begin, Share share) {
  constexpr int height = MatrixGradient<float>::tile_rows, width = MatrixGradient<float>::tile_columns;
  alignas(kCacheLine) float sums[height * width];
  const int groups = round_up(call.rows, height) / height, right = call.columns - call.split;
  for (int c = 0; c < call.columns; c += width)
    for (int group = share.first(groups); group < share.last(groups); ++group) {
      gradient_tile<height, width>(call.pairs_a.get() + static_cast<size_t>(group) * height * lines,
                                   call.pairs_b.get() + static_cast<size_t>(c) * lines, lines, sums);
      const int end = std::min(c + width, call.columns);
      const int cut = std::clamp(call.split, c, end);  // columns before it belong to `left`
      for (int r = 0; r < height && group * height + r < call.rows; ++r) {
        const size_t row = static_cast<size_t>(group) * height + r;
        const float* found = sums + r * width;
        if (cut > c) put_sums(found, cut - c, begin, call.left + row * call.split + c);
        if (end > cut) put_sums(found + cut - c, end - cut, begin, call.right + row * right + cut - call.split);
      }
    }
}

inline void run(MatrixGradient<float>& call, int threads) {
  using Call = MatrixGradient<float>;
  const int tokens = static_cast<int>(call.live.size());
  if (tokens == 0) {
    std::fill_n(call.left, static_cast<size_t>(call.rows) * call.split, 0.0f);
    std::fill_n(call.right, static_cast<size_t>(call.rows) * (call.columns - call.split), 0.0f);
  }
  for (int first = 0; first < tokens; first += Call::block) {
    const int count = std::min<int>(Call::block, tokens - first);
    const int* chosen = call.live.data() + first;
    auto pack = [&](int thread) {
      const Share share{thread, threads};
      pair_tokens<Call::tile_rows>(call.a, call.rows, chosen, count, false, share, call.pairs_a.get());
      pair_tokens<Call::tile_columns>(call.b, call.columns, chosen, count, call.relu, share, call.pairs_b.get());
    };
    auto add = [&](int thread) { add_block(call, (count + 1) / 2, first == 0, {thread, threads}); };
    in_parallel(threads, pack, [] {});
    in_parallel(threads, add, [] {});
  }
}
}  // namespace rru::RRU_ISA
#endif
