// Products of bfloat16 by AMX, which multiplies whole tiles: 16 rows of 32 values by 32 lines of 16 columns.
//
// The right factor is a matrix of pairs as in bfloat16.h, of which 16 lines are a tile. The left factor is stored tile by
// tile. Sums are in tiles 0 to 3; tiles 4 to 7 hold factors.
#pragma once
#include "products.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__) && (__has_include(<amxtileintrin.h>) || __has_include(<amxintrin.h>))  // not before GCC 11
#define RRU_TILES __attribute__((target("amx-tile,amx-bf16,avx512bf16")))  // called only if the processor has these
#endif

namespace rru {
// Return whether code for AVX-512 uses AMX: the processor and the system have it, and no test has switched it off.
bool has_bfloat16_tiles();
}  // namespace rru

namespace rru::RRU_ISA {
constexpr int kTile = 16;                            // rows and columns of a tile of sums
constexpr int kTileDepth = 2 * kTile;                // values in a row of a left tile
constexpr size_t kTileBytes = kTile * kTile * 4;

#if defined(RRU_TILES)
// Gives a thread its tiles, all of the full size, during its lifetime.
class TilesInUse {
 public:
  RRU_TILES TilesInUse() {
    struct alignas(kCacheLine) {
      uint8_t palette = 1, unused[15] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    std::fill_n(shape.row_bytes, 8, kCacheLine), std::fill_n(shape.rows, 8, kTile);
    _tile_loadconfig(&shape);
    asm volatile("" ::: "memory");  // loads of tiles do not tell the compiler what they read
  }
  RRU_TILES ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
};

// Tiles of a factor, in bytes: the first, how far its lines and the next tile in depth and in breadth are apart.
struct TileSource {
  const char* at;
  size_t line, deeper, beside;
};

RRU_TILES inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Compute 32 x 32 sums, of two tiles of each factor, with `depth` tiles in depth. `sums` has rows of 32.
RRU_TILES inline void multiply_2_by_2(TileSource a, TileSource b, int depth, float* sums, Ahead& ahead) {
  zero_sums();
  for (int i = 0; i < depth; ++i, a.at += a.deeper, b.at += b.deeper) {
    ahead.fetch();
    _tile_loadd(4, a.at, a.line);
    _tile_loadd(6, b.at, b.line);
    _tile_loadd(7, b.at + b.beside, b.line);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a.at + a.beside, a.line);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int row = 2 * kTile;
  _tile_stored(0, sums, row * sizeof(float));
  _tile_stored(1, sums + kTile, row * sizeof(float));
  _tile_stored(2, sums + kTile * row, row * sizeof(float));
  _tile_stored(3, sums + kTile * row + kTile, row * sizeof(float));
}

// Compute 16 x 64 sums, of one tile of `a` and two each of `b` and `c`. `sums` has rows of 64.
RRU_TILES inline void multiply_1_by_4(TileSource a, TileSource b, const char* c, int depth, float* sums, Ahead& ahead) {
  zero_sums();
  for (int i = 0; i < depth; ++i, a.at += a.deeper, b.at += b.deeper, c += b.deeper) {
    ahead.fetch();
    _tile_loadd(4, a.at, a.line);
    _tile_loadd(5, b.at, b.line);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, b.at + b.beside, b.line);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, c, b.line);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, c + b.beside, b.line);
    _tile_dpbf16ps(3, 4, 5);
  }
  constexpr int row = 4 * kTile;
  _tile_stored(0, sums, row * sizeof(float));
  _tile_stored(1, sums + kTile, row * sizeof(float));
  _tile_stored(2, sums + 2 * kTile, row * sizeof(float));
  _tile_stored(3, sums + 3 * kTile, row * sizeof(float));
}

// The rows that a product multiplies, rounded, tile by tile: (rows / 16, depth / 32, 16, 32).
class TiledRows {
 public:
  RRU_TILES void round(const float* const* rows, int count, int size) {
    depth_ = round_up(size, kTileDepth) / kTileDepth;
    char* const bytes = bytes_.at_least(round_up(count, 2 * kTile) / kTile * depth_ * kTileBytes);
    for (int r = 0; r < count; ++r) {
      char* target = bytes + r / kTile * depth_ * kTileBytes + r % kTile * kCacheLine;
      for (int k = 0; k < size; k += kTileDepth, target += kTileBytes) {
        const int first = std::min(size - k, kTile), second = std::min(size - k, kTileDepth) - first;
        const Vector<float> low = load_some(rows[r] + k, first), high = load_some(rows[r] + k + kTile, second);
        const __m512bh rounded = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
        std::memcpy(target, &rounded, sizeof rounded);
      }
    }
  }
  int depth() const { return depth_; }
  // The tiles of 32 rows from `first` on, a multiple of 16.
  TileSource from(int first) const {
    return {bytes_.get() + first / kTile * depth_ * kTileBytes, kCacheLine, kTileBytes, depth_ * kTileBytes};
  }

 private:
  GrowingBuffer<char> bytes_;
  size_t depth_ = 0;
};

// `multiply` for a matrix of pairs that fills tiles. Which rows are multiplied together does not change a result.
RRU_TILES inline void multiply_tiles(const TiledRows& a, int rows, const Packed<float>& matrix, Start<float> start,
                                     float* const* out, Share share) {
  constexpr int width = Packed<float>::width;
  constexpr size_t line = width * sizeof(uint32_t);
  static_assert(width == 2 * kTile || RRU_VECTOR_BYTES != 64);
  alignas(kCacheLine) float sums[2 * kTile * 2 * kTile];
  const TilesInUse in_use;
  const auto panel = [&](int p) { return reinterpret_cast<const char*>(matrix.pairs() + p * matrix.pair_stride()); };
  const auto put = [&](int first, int count, int column, int columns) {
    for (int r = first; r < first + count; ++r)
      for (int v = 0; v < columns; v += kTile)
        store(out[r] + column + v, load(start[r] + column + v) + load(sums + (r - first) * columns + v));
  };
  const bool few = rows <= kTile;
  const int together = few ? kTile : 2 * kTile, blocks = (rows + together - 1) / together, end = share.last(matrix.panels);
  for (int p = share.first(matrix.panels); p < end;) {
    const bool pair = few && p + 1 < end;
    const int next = p + 1 + pair;
    Ahead ahead;
    if (next + pair < end && matrix.bytes() >= kMinAheadBytes)
      ahead = {panel(next), (1 + pair) * matrix.pair_stride() * sizeof(uint32_t), a.depth() * kTile, blocks};
    const TileSource b{panel(p), line, kTile * line, kCacheLine};
    for (int first = 0; first < rows; first += together) {
      const int count = std::min(together, rows - first);
      if (pair)
        multiply_1_by_4(a.from(first), b, panel(p + 1), a.depth(), sums, ahead);
      else
        multiply_2_by_2(a.from(first), b, a.depth(), sums, ahead);
      put(first, count, p * width, pair ? 2 * width : width);
    }
    p = next;
  }
}
#else
class TiledRows {};
#endif
}  // namespace rru::RRU_ISA
