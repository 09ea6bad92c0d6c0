// Dropout masks from Philox, a counter-based random number generator. scan/dropout.py is the definition.
#pragma once
#include <algorithm>
#include <cmath>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#include "simd.h"

namespace rru::RRU_ISA {

// 32-bit words, each in the lower half of 64 bits because Philox multiplies them. The upper half may hold anything.
typedef uint64_t Words __attribute__((vector_size(RRU_VECTOR_BYTES)));

// Multiply the lower halves of `a`; what the upper ones hold does not matter.
inline Words widening_product(Words a, uint32_t b) {
#if RRU_VECTOR_BYTES == 64
  return (Words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif RRU_VECTOR_BYTES == 32
  return (Words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__SSE2__)
  return (Words)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
  return (a & 0xFFFFFFFF) * b;
#endif
}

// Write low[0], high[0], low[1], high[1], ...
inline void write_in_turn(Words low, Words high, uint32_t* out) {
#if RRU_VECTOR_BYTES == 64
  const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0), second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64((__m512i)low, first, (__m512i)high));
  _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64((__m512i)low, second, (__m512i)high));
#elif RRU_VECTOR_BYTES == 32
  const __m256i even = _mm256_unpacklo_epi64((__m256i)low, (__m256i)high);
  const __m256i odd = _mm256_unpackhi_epi64((__m256i)low, (__m256i)high);
  _mm256_storeu_si256((__m256i*)out, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256((__m256i*)(out + 8), _mm256_permute2x128_si256(even, odd, 0x31));
#else
  for (size_t i = 0; i < sizeof(Words) / sizeof(uint64_t); ++i) {
    const uint64_t two[2] = {low[i], high[i]};
    std::memcpy(out + 4 * i, two, sizeof two);
  }
#endif
}

struct Dropout {
  uint64_t seed;
  double rate;  // zero: no dropout

  static constexpr int together = 4;  // features whose words come from one counter
  static constexpr int lanes = RRU_VECTOR_BYTES / 8, vectors = 4, words = together * lanes * vectors;

  bool active() const { return rate > 0; }

  // Fills `out` with Philox4x32-10 of the counters (first_block, row, step, 0), (first_block + 1, row, step, 0), ...
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
        c0[v] = (p1 >> 32) ^ c1[v] ^ k0, c1[v] = p1;
        c2[v] = (p0 >> 32) ^ c3[v] ^ k1, c3[v] = p0;
      }
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    for (int v = 0; v < vectors; ++v) {
      const Words low = (c0[v] & 0xFFFFFFFF) | c1[v] << 32, high = (c2[v] & 0xFFFFFFFF) | c3[v] << 32;
      write_in_turn(low, high, out + 4 * lanes * v);
    }
  }

  // Set factors[f] to 0 or 1 / (1 - rate) for f < features, for one time step of one row of the batch.
  template <typename T>
  void mask(int step, int row, int features, T* factors) const {
    mask(step, row, 0, features, factors);
  }
  // Set factors[f] to those of feature first + f. `first` must be a multiple of `together`.
  template <typename T>
  void mask(int step, int row, int first, int features, T* factors) const {
    const double share = std::nearbyint(rate * 4294967296.0);
    if (share > 4294967295.0) return static_cast<void>(std::fill_n(factors, features, T(0)));  // the rate rounds to 1
    const uint32_t threshold = static_cast<uint32_t>(share);
    const T kept = static_cast<T>(1 / (1 - rate));
    alignas(64) uint32_t bits[words];
    T block[words];
    for (int f = 0; f < features; f += words) {
      random((first + f) / together, row, step, bits);
      T* target = features - f < words ? block : factors + f;
      for (int i = 0; i < words; ++i) target[i] = bits[i] >= threshold ? kept : T(0);
      if (target == block) std::copy_n(block, features - f, factors + f);
    }
  }
};
}  // namespace rru::RRU_ISA
