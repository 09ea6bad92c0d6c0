// Copies of matrices that transpose them. Packing transposes every weight once per call.
#pragma once
#include <cstddef>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace rru::RRU_ISA {

// Copy a row-major `rows` x `cols` block, whose rows are `from_row` apart, transposed to rows that are `to_row` apart.
template <typename T>
inline void transpose(const T* from, size_t from_row, int rows, int cols, T* to, size_t to_row) {
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < cols; ++c) to[c * to_row + r] = from[r * from_row + c];
}

#if defined(__AVX__)
// The same for 8 x 8 floats, in registers: entry by entry takes several times as long.
inline void transpose_8(const float* from, size_t from_row, float* to, size_t to_row) {
  __m256 halves[8], pairs[8], fours[8];
  for (int r = 0; r < 4; ++r)  // lanes: row r and row r + 4
    for (int half = 0; half < 2; ++half) {
      const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(from + r * from_row + 4 * half));
      halves[r + 4 * half] = _mm256_insertf128_ps(low, _mm_loadu_ps(from + (r + 4) * from_row + 4 * half), 1);
    }
  for (int half = 0; half < 8; half += 4)
    for (int r = 0; r < 2; ++r) {
      pairs[half + r] = _mm256_unpacklo_ps(halves[half + r], halves[half + r + 2]);
      pairs[half + r + 2] = _mm256_unpackhi_ps(halves[half + r], halves[half + r + 2]);
    }
  for (int half = 0; half < 8; half += 4)
    for (int c = 0; c < 4; c += 2) {
      fours[half + c] = _mm256_unpacklo_ps(pairs[half + c], pairs[half + c + 1]);
      fours[half + c + 1] = _mm256_unpackhi_ps(pairs[half + c], pairs[half + c + 1]);
    }
  for (int c = 0; c < 8; ++c) _mm256_storeu_ps(to + c * to_row, fours[c]);
}

template <>
inline void transpose(const float* from, size_t from_row, int rows, int cols, float* to, size_t to_row) {
  const int whole_rows = rows / 8 * 8, whole_cols = cols / 8 * 8;
  for (int r = 0; r < whole_rows; r += 8)
    for (int c = 0; c < whole_cols; c += 8) transpose_8(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
  for (int r = 0; r < rows; ++r)
    for (int c = r < whole_rows ? whole_cols : 0; c < cols; ++c) to[c * to_row + r] = from[r * from_row + c];
}
#endif
}  // namespace rru::RRU_ISA
