// Products in bfloat16: both factors are rounded to bfloat16, sums and results are float32.
//
// A matrix is stored in pairs: lane j of line i in a panel has element (2i, j) in its lower 16 bits and (2i + 1, j) in
// the upper ones. AVX512_BF16's dot products take such pairs. Without them, a shift and a mask make float32 of a pair.
#pragma once
#include "tiles.h"
#if defined(__AVX512F__)
#define RRU_DOTS __attribute__((target("avx512bf16")))  // called only if the processor has these instructions
#endif

namespace rru {
// Return whether code for AVX-512 uses AVX512_BF16: the processor has it, fast, and no test has switched it off.
bool has_bfloat16_dots();
}  // namespace rru

namespace rru::RRU_ISA {

typedef uint32_t Bits __attribute__((vector_size(RRU_VECTOR_BYTES)));

constexpr uint32_t kUpper = 0xffff0000;

// Round to the nearest bfloat16, ties to even, in the upper 16 bits. The lower ones are not zero. NaN stays NaN.
inline Bits round_to_bfloat16(Vector<float> x) {
  const Bits bits = (Bits)x, nan = (Bits)(x != x);
  return (bits + 0x7fff + ((bits >> 16) & 1)) | (nan & 0x7fc00000);
}

// Turns a packed matrix into pairs, in its own memory, of which it uses half. Does nothing if it is not packed.
inline void to_pairs(Packed<float>& matrix) {
  constexpr int lanes = Simd<float>::lanes, width = Packed<float>::width;
  if (!matrix.packed || matrix.halves) return;
  float* data = matrix.data.get();
  uint32_t* pairs = reinterpret_cast<uint32_t*>(data);  // a pair is never written past the two values it is made of
  for (int p = 0; p < matrix.panels; ++p)
    for (int k = 0; k < 2 * matrix.pair_lines(); k += 2) {
      const float* line = data + p * matrix.stride() + static_cast<size_t>(k) * width;
      for (int v = 0; v < width; v += lanes) {
        const Bits low = k < matrix.depth ? round_to_bfloat16(load(line + v)) : Bits{};
        const Bits high = k + 1 < matrix.depth ? round_to_bfloat16(load(line + width + v)) : Bits{};
        const Bits pair = (high & kUpper) | (low >> 16);
        std::memcpy(pairs, &pair, sizeof pair);
        pairs += lanes;
      }
    }
  matrix.halves = true;
}

// Round a row to bfloat16 values in float32.
inline void round_row(const float* row, int size, float* out) {
  for_each<float>(size, [&](auto load, auto store) {
    store(out, (Vector<float>)(round_to_bfloat16(load(row)) & kUpper));
  });
}

#if defined(RRU_DOTS)
// Round a row of `size` values to bfloat16, padded with zeros to a whole number of registers. Denormals become zero, as
// they do in dot products.
RRU_DOTS inline void round_row_for_dots(const float* row, int size, uint16_t* out) {
  constexpr int lanes = Simd<float>::lanes;
  for (int k = 0; k < size; k += lanes) {
    const Vector<float> values = k + lanes <= size ? load(row + k) : load_some(row + k, size - k);
    const __m256bh rounded = _mm512_cvtneps_pbh((__m512)values);
    std::memcpy(out + k, &rounded, sizeof rounded);
  }
}
#else
inline void round_row_for_dots(const float*, int, uint16_t*) {}  // never called
#endif

// The rows that a product multiplies, rounded: pairs for dot products, else values.
class RoundedRows {
 public:
  void round(const float* const* rows, int count, int size, bool dots) {
    stride_ = round_up(size, 2 * Simd<float>::lanes) / (dots ? 2 : 1);
    const size_t needed = static_cast<size_t>(count) * stride_;
    if (values_.size() < needed) values_.resize(needed);
    for (int r = 0; r < count; ++r) {
      float* target = values_.data() + static_cast<size_t>(r) * stride_;
      if (dots)
        round_row_for_dots(rows[r], size, reinterpret_cast<uint16_t*>(target));
      else
        round_row(rows[r], size, target);
    }
  }
  const float* row(int r) const { return values_.data() + static_cast<size_t>(r) * stride_; }
  int stride() const { return stride_; }

  TiledRows tiled;  // the same for AMX

 private:
  std::vector<float> values_;
  int stride_ = 0;
};

// One tile of a product: `Rows` rows from `a`, `stride` apart, times `Panels` adjacent panels from number p.
struct Shifted {
  template <int Rows, int Panels>
  static void tile(const float* a, int stride, const Packed<float>& matrix, int p, Start<float> start, float* const* out,
                   Ahead& ahead) {
    constexpr int lanes = Simd<float>::lanes, width = 2 * lanes, vectors = 2 * Panels;
    const int lines = matrix.depth / 2, column = p * width;
    const size_t next = matrix.pair_stride();
    const uint32_t* panel = matrix.pairs() + p * next;
    Vector<float> sums[Rows][vectors];
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r)
      RRU_UNROLL
    for (int v = 0; v < vectors; ++v) sums[r][v] = load(start[r] + column + v * lanes);
    auto add = [&](const float* from, auto to_float) {
      Vector<float> b[vectors];
      RRU_UNROLL
      for (int v = 0; v < vectors; ++v) b[v] = to_float(load_bits(panel + (v / 2) * next + (v % 2) * lanes));
      RRU_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const float scalar = from[static_cast<size_t>(r) * stride];
        RRU_UNROLL
        for (int v = 0; v < vectors; ++v) sums[r][v] += scalar * b[v];
      }
    };
    auto low = [](Bits pair) { return (Vector<float>)(pair << 16); };
    auto high = [](Bits pair) { return (Vector<float>)(pair & kUpper); };
    for (int i = 0; i < lines;) {
      ahead.fetch();
      for (const int stop = ahead.block_end(i, lines); i < stop; ++i, a += 2, panel += width) add(a, low), add(a + 1, high);
    }
    if (matrix.depth % 2) add(a, low);
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r)
      RRU_UNROLL
    for (int v = 0; v < vectors; ++v) store(out[r] + column + v * lanes, sums[r][v]);
  }

 private:
  static Bits load_bits(const uint32_t* from) {
    Bits bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  }
};

#if defined(RRU_DOTS)
struct Dots {
  template <int Rows, int Panels>
  RRU_DOTS static void tile(const float* a, int stride, const Packed<float>& matrix, int p, Start<float> start,
                            float* const* out, Ahead& ahead) {
    constexpr int lanes = Simd<float>::lanes, width = 2 * lanes, vectors = 2 * Panels;
    const int lines = (matrix.depth + 1) / 2, column = p * width;
    const size_t next = matrix.pair_stride();
    const uint32_t* panel = matrix.pairs() + p * next;
    __m512 sums[Rows][vectors];
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r)
      RRU_UNROLL
    for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_loadu_ps(start[r] + column + v * lanes);
    for (int i = 0; i < lines;) {
      ahead.fetch();
      for (const int stop = ahead.block_end(i, lines); i < stop; ++i, ++a, panel += width) {
        __m512i b[vectors];
        RRU_UNROLL
        for (int v = 0; v < vectors; ++v) b[v] = _mm512_loadu_si512(panel + (v / 2) * next + (v % 2) * lanes);
        RRU_UNROLL
        for (int r = 0; r < Rows; ++r) {
          const __m512i pair = _mm512_castps_si512(_mm512_set1_ps(a[static_cast<size_t>(r) * stride]));
          RRU_UNROLL
          for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)pair, (__m512bh)b[v]);
        }
      }
    }
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r)
      RRU_UNROLL
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(out[r] + column + v * lanes, sums[r][v]);
  }
};
#else
using Dots = Shifted;  // never called
#endif

constexpr int kTileRows = RRU_VECTOR_BYTES == 64 ? 12 : 6;  // of one panel: as many as there are registers for the sums

// Call Kernel::tile for a number of rows that is known only at run time.
template <typename Kernel, int Panels, int Rows = kTileRows / Panels>
inline void tile_halves(int rows, const float* a, int stride, const Packed<float>& matrix, int p, Start<float> start,
                        float* const* out, Ahead& ahead) {
  if constexpr (Rows > 1)
    if (rows < Rows) return tile_halves<Kernel, Panels, Rows - 1>(rows, a, stride, matrix, p, start, out, ahead);
  Kernel::template tile<Rows, Panels>(a, stride, matrix, p, start, out, ahead);
}

template <typename Kernel>
void multiply_rounded(const RoundedRows& a, int rows, const Packed<float>& matrix, Start<float> start, float* const* out,
                      Share share) {
  const int tiles = (rows + kTileRows - 1) / kTileRows, end = share.last(matrix.panels);
  for (int p = share.first(matrix.panels); p < end;) {
    const bool pair = rows <= kTileRows / 2 && p + 1 < end;
    const bool more = p + 2 * (1 + pair) <= end && matrix.bytes() >= kMinAheadBytes;
    const size_t next = matrix.pair_stride();
    Ahead ahead;
    if (more)
      ahead = {matrix.pairs() + (p + 1 + pair) * next, (1 + pair) * next * sizeof(uint32_t), (matrix.depth + 1) / 2, tiles};
    for (int i = 0, first = 0; i < tiles; ++i) {
      const int count = (rows - first + tiles - i - 1) / (tiles - i);
      if (pair)
        tile_halves<Kernel, 2>(count, a.row(first), a.stride(), matrix, p, start.from(first), out + first, ahead);
      else
        tile_halves<Kernel, 1>(count, a.row(first), a.stride(), matrix, p, start.from(first), out + first, ahead);
      first += count;
    }
    p += pair ? 2 : 1;
  }
}

// `multiply` for a matrix of pairs. `tiles` and `dots` say which instructions to use, if they suit the matrix.
inline void multiply_pairs(const float* const* a, int rows, const Packed<float>& matrix, const float* const* start,
                           float* const* out, Share share, bool dots, bool tiles, RoundedRows& rounded) {
  const float* const bias = matrix.bias.get();
  const Start<float> starts = start ? Start<float>{start, 1} : Start<float>{&bias, 0};
#if defined(RRU_TILES)
  if (tiles && matrix.depth >= kTile) {
    rounded.tiled.round(a, rows, matrix.depth);
    return multiply_tiles(rounded.tiled, rows, matrix, starts, out, share);
  }
#endif
  rounded.round(a, rows, matrix.depth, dots);
  if (dots)
    multiply_rounded<Dots>(rounded, rows, matrix, starts, out, share);
  else
    multiply_rounded<Shifted>(rounded, rows, matrix, starts, out, share);
}
}  // namespace rru::RRU_ISA
