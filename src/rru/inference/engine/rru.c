/* The engine of rru.h. Compile with -O3 -ffp-contract=fast; -DRRU_PLAIN leaves out vector instructions.
 *
 * A blob is little-endian: magic "RRUM", version, bytes of the whole, CRC-32 of all after this field, the number of
 * numbers and of tensors; the numbers (rru_field, int32 each); a table of 32 bytes for each tensor (name, type, rows,
 * columns, offset); and the tensors, each aligned to 16 bytes, in the order in which `build` takes them.
 */
#include "rru.h"

/* ---------------------------------------------------------------- vectors */

#if defined(RRU_PLAIN) || !(defined(__GNUC__) || defined(__clang__))
#define LANES 1
#elif defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#elif defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__)
#define LANES 4
#else
#define LANES 1
#endif

#if LANES > 1
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif
#endif

#define TOGETHER 8 /* columns that a product reads at once */
#define LINES 4    /* rows of int8 codes that it reads at once, */
#define CODES 16   /* and codes of each */
#define ROWS 8     /* keys that a network over time runs at once */
#define TILE 4     /* rows of which a product computes a few outputs at once */
#define QUANTILES 5
#define MEDIAN 2
#define KNOWN_UNITS 32
#define OCTAVE 12
#define OF_KEY (2 * OCTAVE + 3) /* features of a key beside the keys at some distances from it */
#define COUNT_SCALE 0.1f /* of the number of keys that are on; as in rru/tasks/keys.py */
#define TRIES 512        /* chords to draw for one with the wanted number of voices */
#define TIED_TRIES 128   /* each takes as long as a step */
#define LEAST_TEMPERATURE 0.01f /* as in rru/inference/sampling.py */

enum { NO_HEAD, LINEAR, OF_STATE, CHAIN, NADE, FORECASTS, TIED }; /* RRU_HEAD */

/* ---------------------------------------------------------------- functions of numbers, accurate to a bit or two */

typedef union {
  float number;
  uint32_t bits;
} float_bits;
typedef union {
  double number;
  uint64_t bits;
} double_bits;

/* e^x = power (1 + rest): x = k ln 2 + r, power = 2^k, and rest = e^r - 1 from its series. */
static inline void exponential(float x, float *power, float *rest) {
  float_bits shifted, result;
  float k, r, series = 1.0f / 5040;
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  shifted.number = x * 1.44269504f + 12582912.0f; /* adding this rounds: k is in the last bits */
  k = (float)((int32_t)(shifted.bits & 0x7fffff) - 0x400000);
  r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  result.bits = (shifted.bits + 127) << 23;
  *power = result.number;
  *rest = series * r;
}

static inline float sigmoid(float x) {
  float power, rest;
  exponential(-x, &power, &rest);
  return 1 / (1 + power + rest * power);
}

/* (1 - e) / (1 + e) with e = exp(-2x); from the series for 1 - e, since near zero the difference loses all digits. */
static inline float hyperbolic_tangent(float x) {
  float power, rest, difference;
  exponential(-2 * x, &power, &rest);
  difference = (1 - power) - rest * power;
  return difference / (2 - difference);
}

static float inverse_root(float x) {
  float_bits guess;
  int i;
  guess.number = x;
  guess.bits = 0x5f3759df - (guess.bits >> 1);
  for (i = 0; i < 4; ++i) guess.number *= 1.5f - 0.5f * x * guess.number * guess.number;
  return guess.number;
}

static double exp_double(double x) {
  double series = 1, r, term = 1;
  double_bits power;
  int64_t k;
  int i;
  if (x != x) return x;
  x = x > 700 ? 700 : x; /* as the forecasts of rru are limited */
  if (x < -700) return 0;
  k = (int64_t)(x * 1.44269504088896340736 + (x < 0 ? -0.5 : 0.5));
  r = (x - (double)k * 0.693147180369123816490) - (double)k * 1.90821492927058770002e-10;
  for (i = 1; i < 18; ++i) {
    term *= r / i;
    series += term;
  }
  power.bits = (uint64_t)(k + 1023) << 52;
  return series * power.number;
}

/* The logarithm of a positive normal number: x = m 2^k with m near 1, log m = 2 atanh((m - 1) / (m + 1)). */
static double log_double(double x) {
  double_bits parts;
  double s, square, sum = 0, power;
  int64_t k;
  int i;
  if (!(x > 2.3e-308)) return -708.4;
  parts.number = x;
  k = (int64_t)(parts.bits >> 52) - 1023;
  if (k == 1024) return x; /* infinite */
  parts.bits = (parts.bits & 0xfffffffffffffULL) | (1023ULL << 52);
  if (parts.number > 1.41421356237309504880) {
    parts.number *= 0.5;
    k += 1;
  }
  s = (parts.number - 1) / (parts.number + 1);
  square = s * s;
  power = s;
  for (i = 1; i < 28; i += 2) {
    sum += power / i;
    power *= square;
  }
  return 2 * sum + (double)k * 0.693147180559945309417;
}

/* log(1 + e^x) */
static double softplus(double x) {
  const double small = exp_double(x > 0 ? -x : x);
  /* the logarithm of 1 + small loses the digits of a tiny `small` */
  const double rest = small < 1e-5 ? small - 0.5 * small * small : log_double(1 + small);
  return x > 0 ? x + rest : rest;
}

static int is_nan(double x) { return x != x; }

/* ---------------------------------------------------------------- products */

typedef enum { ROWS_F32, ROWS_I8, COLUMNS_F32, BLOCKS_I8, WHOLE_U32, ROWS_F64, BYTES } tensor_type;

/* A matrix and the bias of its product: floats by column, or int8 codes in blocks with a scale for each row. */
typedef struct {
  int32_t rows, columns;
  const float *weights;      /* (columns, rows), rows padded to a multiple of 4 */
  const int8_t *codes;       /* (rows / 4, columns / 16, 4, 16), rounded up */
  const float *scales, *bias; /* (rows,) */
} matrix;

static size_t padded(size_t size, size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

static void copy(float *to, const float *from, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) to[i] = from[i];
}

/* Add some columns, each times a factor, to `sums`; `size` is a multiple of 4. */
static void add_columns(float *sums, const float *const columns[TOGETHER], const float factors[TOGETHER], size_t size) {
  const float *const a = columns[0], *const b = columns[1], *const c = columns[2], *const d = columns[3];
  const float *const e = columns[4], *const f = columns[5], *const g = columns[6], *const h = columns[7];
  const float by_a = factors[0], by_b = factors[1], by_c = factors[2], by_d = factors[3];
  const float by_e = factors[4], by_f = factors[5], by_g = factors[6], by_h = factors[7];
  size_t i = 0;
#if LANES > 1
#define AT(type, p) (*(const type *)((p) + i))
#define ADD(type)                                                                           \
  {                                                                                         \
    type even = AT(type, sums) + by_a * AT(type, a), odd = by_b * AT(type, b);              \
    even += by_c * AT(type, c), odd += by_d * AT(type, d);                                  \
    even += by_e * AT(type, e), odd += by_f * AT(type, f);                                  \
    even += by_g * AT(type, g), odd += by_h * AT(type, h);                                  \
    *(type *)(sums + i) = even + odd;                                                       \
  }
  for (; i + LANES <= size; i += LANES) ADD(vector)
  for (; i < size; i += 4) ADD(four)
#else
  for (; i < size; ++i)
    sums[i] += (by_a * a[i] + by_b * b[i] + by_c * c[i] + by_d * d[i]) +
               (by_e * e[i] + by_f * f[i] + by_g * g[i] + by_h * h[i]);
#endif
}

/* The product with floats skips the zeros of x: keys that are off, and units behind a ReLU. */
static void multiply_floats(const matrix *w, const float *x, float *y) {
  const size_t size = padded((size_t)w->rows, 4);
  const float *columns[TOGETHER];
  float factors[TOGETHER];
  int32_t k, count = 0;
  copy(y, w->bias, (size_t)w->rows);
  for (k = w->rows; (size_t)k < size; ++k) y[k] = 0;
  for (k = 0; k < w->columns; ++k) {
    if (x[k] == 0) continue;
    columns[count] = w->weights + (size_t)k * size;
    factors[count] = x[k];
    if (++count == TOGETHER) {
      add_columns(y, columns, factors, size);
      count = 0;
    }
  }
  if (!count) return;
  for (k = count; k < TOGETHER; ++k) {
    columns[k] = columns[0];
    factors[k] = 0;
  }
  add_columns(y, columns, factors, size);
}

#if LANES > 1
/* The same for several rows at once, each `gap` floats after the one before: a weight that is read serves 4 of them. */
static void multiply_tiles(const matrix *w, const float *x, float *y, size_t gap) {
  const size_t size = padded((size_t)w->rows, 4);
  size_t i = 0;
  int32_t k;
  int r, v;
#define MULTIPLY(type, vectors)                                                              \
  {                                                                                          \
    type sums[TILE][vectors];                                                                \
    for (r = 0; r < TILE; ++r)                                                               \
      for (v = 0; v < vectors; ++v) sums[r][v] = *((const type *)(y + (size_t)r * gap + i) + v); \
    for (k = 0; k < w->columns; ++k) {                                                       \
      const type *const column = (const type *)(w->weights + (size_t)k * size + i);          \
      for (r = 0; r < TILE; ++r)                                                             \
        for (v = 0; v < vectors; ++v) sums[r][v] += x[(size_t)r * gap + (size_t)k] * column[v]; \
    }                                                                                        \
    for (r = 0; r < TILE; ++r)                                                               \
      for (v = 0; v < vectors; ++v) *((type *)(y + (size_t)r * gap + i) + v) = sums[r][v];   \
    i += vectors * sizeof(type) / sizeof(float);                                             \
  }
  for (r = 0; r < TILE; ++r) {
    copy(y + (size_t)r * gap, w->bias, (size_t)w->rows);
    for (k = w->rows; (size_t)k < size; ++k) y[(size_t)r * gap + (size_t)k] = 0;
  }
  while (i + 2 * LANES <= size) MULTIPLY(vector, 2)
  if (i + LANES <= size) MULTIPLY(vector, 1)
  while (i < size) MULTIPLY(four, 1)
}
#endif

/* Round x to whole numbers of up to 16 bits, so small that sums of products fit 32 bits; return their scale. */
static float round_input(const float *x, int32_t size, int16_t *whole) {
  const int32_t most = 0x7fffffff / 127 / size, end = (int32_t)padded((size_t)size, CODES);
  const float limit = (float)(most < 32767 ? most : 32767);
  float largest = 0, check = 0, factor;
  int32_t i;
  for (i = 0; i < size; ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    largest = magnitude > largest ? magnitude : largest;
    check += x[i] - x[i]; /* NaN if an entry is infinite or NaN */
  }
  factor = check == 0 && largest > 0 ? limit / largest : 0;
  for (i = 0; i < size; ++i) {
    float_bits shifted;
    shifted.number = (factor == 0 ? 0 : x[i] * factor) + 12582912.0f; /* rounds to the nearest, ties to even */
    whole[i] = (int16_t)((int32_t)(shifted.bits & 0x7fffff) - 0x400000);
  }
  for (; i < end; ++i) whole[i] = 0;
  return check == 0 ? largest / limit : check;
}

/* Sum the products of 4 rows of codes with whole numbers. The sums are exact, so they are the same everywhere. */
static void whole_products(const int8_t *codes, const int16_t *whole, size_t size, int32_t sums[LINES]) {
  size_t k;
  int i;
#if LANES > 1 && defined(__AVX2__)
  __m256i totals[LINES], four_sums;
  __m128i halves;
  for (i = 0; i < LINES; ++i) totals[i] = _mm256_setzero_si256();
  for (k = 0; k < size; k += CODES, codes += LINES * CODES) {
    const __m256i numbers = _mm256_loadu_si256((const __m256i *)(const void *)(whole + k));
    for (i = 0; i < LINES; ++i) {
      const __m128i line = _mm_loadu_si128((const __m128i *)(const void *)(codes + i * CODES));
      totals[i] = _mm256_add_epi32(totals[i], _mm256_madd_epi16(_mm256_cvtepi8_epi16(line), numbers));
    }
  }
  four_sums = _mm256_hadd_epi32(_mm256_hadd_epi32(totals[0], totals[1]), _mm256_hadd_epi32(totals[2], totals[3]));
  halves = _mm_add_epi32(_mm256_castsi256_si128(four_sums), _mm256_extracti128_si256(four_sums, 1));
  _mm_storeu_si128((__m128i *)(void *)sums, halves);
#elif LANES > 1 && defined(__SSE2__)
  for (i = 0; i < LINES; ++i) {
    __m128i total = _mm_setzero_si128();
    int32_t parts[4];
    for (k = 0; k < size; k += CODES) {
      const __m128i line = _mm_loadu_si128((const __m128i *)(const void *)(codes + LINES * k + (size_t)i * CODES));
      const __m128i low = _mm_srai_epi16(_mm_unpacklo_epi8(line, line), 8);
      const __m128i high = _mm_srai_epi16(_mm_unpackhi_epi8(line, line), 8);
      const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(whole + k));
      const __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(whole + k + 8));
      total = _mm_add_epi32(total, _mm_add_epi32(_mm_madd_epi16(low, first), _mm_madd_epi16(high, second)));
    }
    _mm_storeu_si128((__m128i *)(void *)parts, total);
    sums[i] = parts[0] + parts[1] + parts[2] + parts[3];
  }
#elif LANES > 1 && defined(__ARM_NEON)
  for (i = 0; i < LINES; ++i) {
    int32x4_t total = vdupq_n_s32(0);
    int32_t parts[4];
    for (k = 0; k < size; k += CODES) {
      const int8x16_t line = vld1q_s8(codes + LINES * k + (size_t)i * CODES);
      const int16x8_t low = vmovl_s8(vget_low_s8(line)), high = vmovl_s8(vget_high_s8(line));
      const int16x8_t first = vld1q_s16(whole + k), second = vld1q_s16(whole + k + 8);
      total = vmlal_s16(total, vget_low_s16(low), vget_low_s16(first));
      total = vmlal_s16(total, vget_high_s16(low), vget_high_s16(first));
      total = vmlal_s16(total, vget_low_s16(high), vget_low_s16(second));
      total = vmlal_s16(total, vget_high_s16(high), vget_high_s16(second));
    }
    vst1q_s32(parts, total);
    sums[i] = parts[0] + parts[1] + parts[2] + parts[3];
  }
#elif LANES > 1 && defined(__wasm_simd128__)
  for (i = 0; i < LINES; ++i) {
    v128_t total = wasm_i32x4_splat(0);
    for (k = 0; k < size; k += CODES) {
      const v128_t line = wasm_v128_load(codes + LINES * k + (size_t)i * CODES);
      const v128_t low = wasm_i16x8_extend_low_i8x16(line), high = wasm_i16x8_extend_high_i8x16(line);
      total = wasm_i32x4_add(total, wasm_i32x4_dot_i16x8(low, wasm_v128_load(whole + k)));
      total = wasm_i32x4_add(total, wasm_i32x4_dot_i16x8(high, wasm_v128_load(whole + k + 8)));
    }
    sums[i] = wasm_i32x4_extract_lane(total, 0) + wasm_i32x4_extract_lane(total, 1) +
              wasm_i32x4_extract_lane(total, 2) + wasm_i32x4_extract_lane(total, 3);
  }
#else
  for (i = 0; i < LINES; ++i) {
    int32_t total = 0;
    for (k = 0; k < size; k += CODES) {
      const int8_t *const line = codes + LINES * k + (size_t)i * CODES;
      int c;
      for (c = 0; c < CODES; ++c) total += (int32_t)line[c] * whole[k + (size_t)c];
    }
    sums[i] = total;
  }
#endif
}

/* Multiply `count` rows, each `gap` floats after the one before; all of them with a few rows of codes before the next. */
static void multiply_codes(const matrix *w, const float *x, int16_t *whole, float *y, int32_t count, size_t gap) {
  const size_t size = padded((size_t)w->columns, CODES);
  float scales[ROWS];
  int32_t line, i, r;
  for (r = 0; r < count; ++r) scales[r] = round_input(x + (size_t)r * gap, w->columns, whole + (size_t)r * size);
  for (line = 0; line < w->rows; line += LINES) {
    for (r = 0; r < count; ++r) {
      float *const to = y + (size_t)r * gap;
      int32_t sums[LINES];
      whole_products(w->codes + (size_t)line * size, whole + (size_t)r * size, size, sums);
      for (i = 0; i < LINES && line + i < w->rows; ++i)
        to[line + i] = w->bias[line + i] + w->scales[line + i] * scales[r] * (float)sums[i];
    }
  }
}

/* ---------------------------------------------------------------- the model */

typedef struct {
  int32_t inputs;
  matrix first, last; /* RRU: Eq. 1, and Eq. 4 and 6; GRU: two; LSTM: the first alone */
  matrix *more;       /* RRU: Eq. 2; Mogrifier: those of the rounds */
  const float *kept, *z; /* RRU: sigmoid(S) and Z of Eq. 5, (n,) */
  const float *initial;  /* (parts, n) */
} layer;

/* Recurrent layers. Music with one network for all keys has a row for each key. */
typedef struct {
  layer *layers;
  int32_t inputs, hidden, outputs, rows;
  float *state; /* (layers, parts, rows, hidden); with RRU_BAR, then the place of the next step */
} network;

/* How far the network over keys has run for a chord: the logits of the keys, and the state before each. */
typedef struct {
  int32_t count;
  float *logits, *states; /* (keys,), (keys + 1, layers, parts, hidden) */
} key_run;

typedef struct {
  network over_time;
  matrix head, change, known_units, known_head; /* all but the head: of series */
} member;

struct rru_model {
  int32_t numbers[RRU_NUMBERS];
  int32_t parts; /* of a layer's state: h, and for the LSTMs c */
  const float *embedding, *embedding_scales;
  const int8_t *embedding_codes;
  member *members;
  const uint32_t *order, *name_starts;
  matrix to_keys, to_units; /* joint heads: all but NADE have the first alone */
  network over_keys;        /* tied, and its runs: for no key that is on, and for those in `keys_on` */
  key_run silent, sounding;
  const char *names;
  const double *means, *deviations; /* of features of a step, or of inputs of series */
  const float *level, *effects, *trust, *widths;
  const double *scalings;
  matrix start;
  float *state, *both, *wide, *other, *output, *logits, *window, *keys_on;
  double *chances;
  int16_t *whole;
  size_t stride; /* of rows in `both`, `wide` and `other` */
  uint64_t random;
};

/* Multiply `count` rows, at most ROWS; x and y have the stride of the model. */
static void multiply_rows(const rru_model *model, const matrix *w, const float *x, float *y, int32_t count) {
  const size_t gap = model->stride;
  int32_t r = 0;
  if (w->codes) {
    multiply_codes(w, x, model->whole, y, count, gap);
    return;
  }
#if LANES > 1
  for (; r + TILE <= count; r += TILE) multiply_tiles(w, x + (size_t)r * gap, y + (size_t)r * gap, gap);
#endif
  for (; r < count; ++r) multiply_floats(w, x + (size_t)r * gap, y + (size_t)r * gap);
}

static void multiply(const rru_model *model, const matrix *w, const float *x, float *y) {
  multiply_rows(model, w, x, y, 1);
}

static void relu(float *x, int32_t count) {
  int32_t i;
  for (i = 0; i < count; ++i) x[i] = x[i] < 0 ? 0 : x[i];
}

static void normalize(float *x, int32_t count) {
  float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0}, factor;
  int32_t i, k;
  for (i = 0; i + 8 <= count; i += 8)
    for (k = 0; k < 8; ++k) sums[k] += x[i + k] * x[i + k];
  for (; i < count; ++i) sums[0] += x[i] * x[i];
  for (k = 1; k < 8; ++k) sums[0] += sums[k];
  factor = inverse_root(sums[0] / (float)count + 1e-6f);
  for (i = 0; i < count; ++i) x[i] *= factor;
}

/* The cells run `count` rows of a layer. `both` has [x, h] of each, `h` is (count, n), `output` (count, p).
 * Eq. 1-6: */
static void run_rru(rru_model *model, const network *net, const layer *each, float *h, int32_t count, float *output) {
  const int32_t n = net->hidden, p = net->outputs, g = each->first.rows, layers = model->numbers[RRU_OPTION];
  float *j = model->wide, *next = model->other;
  int32_t i, k, r;
  multiply_rows(model, &each->first, model->both, j, count);
  for (r = 0; r < count; ++r) {
    float *const row = j + (size_t)r * model->stride;
    if (model->numbers[RRU_NORMALIZE]) normalize(row, g);
    relu(row, g);
  }
  for (k = 1; k <= layers; ++k) {
    float *const before = j;
    multiply_rows(model, k < layers ? each->more + (k - 1) : &each->last, j, next, count);
    j = next;
    next = before;
    for (r = 0; k < layers && r < count; ++r) relu(j + (size_t)r * model->stride, g);
  }
  for (r = 0; r < count; ++r, h += n, output += p, j += model->stride) {
    if (model->numbers[RRU_ACTIVATE]) relu(j, n + p);
    for (i = 0; i < n; ++i) h[i] = each->kept[i] * h[i] + each->z[i] * j[i];
    copy(output, j + n, (size_t)p);
  }
}

static void run_gru(rru_model *model, const network *net, const layer *each, float *h, int32_t count, float *output) {
  const int32_t n = net->hidden, after = model->numbers[RRU_OPTION];
  float *const inner = model->both + each->inputs;
  int32_t i, r;
  multiply_rows(model, &each->first, model->both, model->wide, count);
  for (r = 0; !after && r < count; ++r)
    for (i = 0; i < n; ++i)
      inner[(size_t)r * model->stride + (size_t)i] *= sigmoid(model->wide[(size_t)r * model->stride + (size_t)i]);
  multiply_rows(model, &each->last, after ? inner : model->both, model->other, count);
  for (r = 0; r < count; ++r, h += n, output += n) {
    float *const gates = model->wide + (size_t)r * model->stride;
    const float *const sums = model->other + (size_t)r * model->stride;
    if (after) {
      for (i = 0; i < n; ++i) gates[2 * n + i] += sigmoid(gates[i] + sums[i]) * sums[2 * n + i];
      for (i = 0; i < n; ++i) gates[n + i] += sums[n + i];
    } else {
      copy(gates + 2 * n, sums, (size_t)n);
    }
    for (i = 0; i < n; ++i) {
      const float update = sigmoid(gates[n + i]);
      h[i] = update * h[i] + (1 - update) * hyperbolic_tangent(gates[2 * n + i]);
    }
    copy(output, h, (size_t)n);
  }
}

static void mogrify(rru_model *model, const layer *each, int32_t count) {
  const int32_t rank = model->numbers[RRU_NORMALIZE];
  const matrix *weights = each->more;
  int32_t round, i, r;
  for (round = 0; round < model->numbers[RRU_OPTION]; ++round) {
    float *const x = model->both, *const h = model->both + each->inputs;
    float *const target = round % 2 ? h : x;
    const float *source = round % 2 ? x : h;
    if (rank) {
      multiply_rows(model, weights++, source, model->other, count);
      source = model->other;
    }
    multiply_rows(model, weights, source, model->wide, count);
    for (r = 0; r < count; ++r) {
      float *const row = target + (size_t)r * model->stride;
      const float *const gate = model->wide + (size_t)r * model->stride;
      for (i = 0; i < weights->rows; ++i) row[i] *= 2 * sigmoid(gate[i]);
    }
    ++weights;
  }
}

static void run_lstm(rru_model *model, const network *net, const layer *each, float *h, int32_t count, float *output) {
  const int32_t n = net->hidden, capped = model->numbers[RRU_CELL] == 3;
  float *c = h + (size_t)net->rows * (size_t)n;
  int32_t i, r;
  multiply_rows(model, &each->first, model->both, model->wide, count);
  for (r = 0; r < count; ++r, h += n, c += n, output += n) {
    const float *const in = model->wide + (size_t)r * model->stride;
    const float *const forget = in + n, *const candidate = in + 2 * n, *const out = in + 3 * n;
    for (i = 0; i < n; ++i) {
      const float f = sigmoid(forget[i]), gate = sigmoid(in[i]), most = capped && 1 - f < gate ? 1 - f : gate;
      c[i] = f * c[i] + most * hyperbolic_tangent(candidate[i]);
    }
    for (i = 0; i < n; ++i) h[i] = hyperbolic_tangent(c[i]) * sigmoid(out[i]);
    copy(output, h, (size_t)n);
  }
}

/* Run the layers for `count` rows from row `first` on, at most ROWS, whose inputs are in `both`; put the outputs of the
 * last layer into `output`, (count, p). */
static void run_layers(rru_model *model, const network *net, int32_t first, int32_t count, float *output) {
  const size_t n = (size_t)net->hidden, p = (size_t)net->outputs, rows = (size_t)net->rows;
  int32_t number, r;
  for (number = 0; number < model->numbers[RRU_LAYERS]; ++number) {
    const layer *const at = net->layers + number;
    float *const h = net->state + ((size_t)number * (size_t)model->parts * rows + (size_t)first) * n;
    for (r = 0; r < count; ++r) {
      float *const both = model->both + (size_t)r * model->stride;
      if (number) copy(both, output + (size_t)r * p, p);
      copy(both + at->inputs, h + (size_t)r * n, n);
    }
    switch (model->numbers[RRU_CELL]) {
      case 0:
        run_rru(model, net, at, h, count, output);
        break;
      case 1:
        run_gru(model, net, at, h, count, output);
        break;
      case 3:
        mogrify(model, at, count); /* then an LSTM step */
        run_lstm(model, net, at, h, count, output);
        break;
      default:
        run_lstm(model, net, at, h, count, output);
    }
  }
}

static size_t state_size(const rru_model *model, const network *net) {
  return (size_t)model->numbers[RRU_LAYERS] * (size_t)model->parts * (size_t)net->rows * (size_t)net->hidden;
}

/* Put the initial state of a network into `state`. */
static void reset_state(const rru_model *model, const network *net, float *state) {
  const size_t n = (size_t)net->hidden;
  int32_t number, part, r;
  for (number = 0; number < model->numbers[RRU_LAYERS]; ++number)
    for (part = 0; part < model->parts; ++part)
      for (r = 0; r < net->rows; ++r, state += n) copy(state, net->layers[number].initial + (size_t)part * n, n);
}

void rru_reset(rru_model *model) {
  const network *const net = &model->members->over_time;
  int32_t i;
  reset_state(model, net, net->state);
  if (model->numbers[RRU_BAR]) net->state[state_size(model, net)] = 0;
  for (i = 0; i < net->rows * net->outputs; ++i) model->output[i] = 0;
  model->silent.count = 0;
  if (model->numbers[RRU_HEAD] == TIED) reset_state(model, &model->over_keys, model->silent.states);
}

/* Describe a chord to one of its keys (rru/tasks/keys.py): which keys at distances from `first` to before `end` are on;
 * how many of the lowest `counted` keys are on, by their interval to this key and in all; and where the key lies.
 * Return the end of what was written to `x`. */
static float *describe(const rru_model *model, const float *chord, int32_t key, int32_t first, int32_t end,
                       int32_t counted, float *x) {
  const int32_t keys = model->numbers[RRU_KEYS];
  const float height = (float)(2 * key) / (float)(keys > 1 ? keys - 1 : 1) - 1;
  float counts[OCTAVE] = {0}, total = 0;
  int32_t i;
  for (i = 0; i < counted; ++i) {
    counts[i % OCTAVE] += chord[i];
    total += chord[i];
  }
  for (i = key + first; i < key + end; ++i) *x++ = i < 0 || i >= keys ? 0 : chord[i];
  for (i = 0; i < OCTAVE; ++i) *x++ = counts[(key + i) % OCTAVE];
  *x++ = COUNT_SCALE * total;
  for (i = 0; i < OCTAVE; ++i) *x++ = key % OCTAVE == i;
  *x++ = height;
  *x++ = height * height;
  return x;
}

int rru_read(rru_model *model, const float *input) {
  const int32_t keys = model->numbers[RRU_KEYS], around = model->numbers[RRU_AROUND], bar = model->numbers[RRU_BAR];
  const network *const net = &model->members->over_time;
  float *const place = net->state + state_size(model, net);
  int32_t first, r, i;
  if (model->numbers[RRU_TOKENS] || model->numbers[RRU_KIND] == RRU_OF_SERIES) return 0;
  if (model->numbers[RRU_HEAD] != TIED) {
    copy(model->both, input, (size_t)model->numbers[RRU_INPUTS]);
    run_layers(model, net, 0, 1, model->output);
    return 1;
  }
  for (first = 0; first < keys; first += ROWS) {
    const int32_t count = keys - first < ROWS ? keys - first : ROWS;
    for (r = 0; r < count; ++r) {
      float *x = model->both + (size_t)r * model->stride;
      x = describe(model, input, first + r, -around, around + 1, keys, x);
      for (i = 0; i < bar; ++i) *x++ = *place == (float)i;
    }
    run_layers(model, net, first, count, model->output + (size_t)first * (size_t)net->outputs);
  }
  if (bar) *place = *place + 1 < (float)bar ? *place + 1 : 0;
  model->silent.count = 0;
  return 1;
}

int rru_read_token(rru_model *model, uint32_t token) {
  const size_t m = (size_t)model->numbers[RRU_INPUTS];
  size_t i;
  if (!model->numbers[RRU_TOKENS]) return 0;
  if (token >= (uint32_t)model->numbers[RRU_TOKENS]) token = (uint32_t)model->numbers[RRU_UNKNOWN];
  if (model->embedding_codes) {
    const int8_t *const codes = model->embedding_codes + token * m;
    for (i = 0; i < m; ++i) model->both[i] = model->embedding_scales[token] * (float)codes[i];
  } else {
    copy(model->both, model->embedding + token * m, m);
  }
  run_layers(model, &model->members->over_time, 0, 1, model->output);
  return 1;
}

const float *rru_predict(rru_model *model) {
  const int32_t head = model->numbers[RRU_HEAD], last = model->numbers[RRU_LAYERS] - 1;
  const float *features = model->output;
  if (head == NO_HEAD || head == TIED) return model->output;
  if (head == FORECASTS) return NULL;
  if (head == OF_STATE) features = model->state + (size_t)last * (size_t)model->parts * (size_t)model->numbers[RRU_HIDDEN];
  multiply(model, &model->members->head, features, model->logits);
  return model->logits;
}

const float *rru_step(rru_model *model, const float *input) {
  return rru_read(model, input) ? rru_predict(model) : NULL;
}

const float *rru_step_token(rru_model *model, uint32_t token) {
  return rru_read_token(model, token) ? rru_predict(model) : NULL;
}

int32_t rru_number(const rru_model *model, rru_field field) {
  return (unsigned)field < RRU_NUMBERS ? model->numbers[field] : 0;
}

float *rru_state(rru_model *model, size_t *count) {
  *count = state_size(model, &model->members->over_time) + (model->numbers[RRU_BAR] > 0);
  return model->state;
}

const char *rru_name(const rru_model *model, uint32_t index, size_t *length) {
  *length = 0;
  if (index >= (uint32_t)model->numbers[RRU_NAMES]) return NULL;
  *length = model->name_starts[index + 1] - model->name_starts[index];
  return model->names + model->name_starts[index];
}

void rru_scale(const rru_model *model, const double *values, float *features) {
  int32_t i;
  for (i = 0; i < model->numbers[RRU_INPUTS]; ++i) {
    const double value = model->numbers[RRU_SCALED] ? (values[i] - model->means[i]) / model->deviations[i] : values[i];
    features[i] = is_nan(value) ? 0 : (float)value;
  }
}

/* ---------------------------------------------------------------- drawing */

/* Also for 0 and NaN, which no number may be divided by. */
static float usable(float temperature) { return temperature > LEAST_TEMPERATURE ? temperature : LEAST_TEMPERATURE; }

void rru_seed(rru_model *model, uint32_t seed) { model->random = seed; }

double rru_random(rru_model *model) { /* SplitMix64 */
  uint64_t z = model->random += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (double)((z ^ (z >> 31)) >> 11) * (1.0 / 9007199254740992.0);
}

static int is_written(const rru_model *model, int32_t token) {
  return model->numbers[RRU_KIND] != RRU_OF_TEXT ||
         (token != model->numbers[RRU_PADDING] && token != model->numbers[RRU_UNKNOWN]);
}

/* Run the network over keys up to before key `end`, after the keys below that are on (`keys_on`). */
static void run_keys(rru_model *model, key_run *run, int32_t end) {
  network *const net = &model->over_keys;
  const size_t p = (size_t)model->numbers[RRU_OUTPUTS], size = state_size(model, net);
  for (; run->count < end; ++run->count) {
    const int32_t key = run->count;
    float logit[4];
    copy(model->both, model->output + (size_t)key * p, p);
    describe(model, model->keys_on, key, -model->numbers[RRU_BELOW], 0, key, model->both + p);
    net->state = run->states + (size_t)(key + 1) * size;
    copy(net->state, net->state - size, size);
    run_layers(model, net, 0, 1, model->logits);
    multiply(model, &model->to_keys, model->logits, logit);
    run->logits[key] = logit[0];
  }
}

/* Turn a key on. Tied: a run has come past it; return the run in which the keys above it see that. */
static key_run *turn_on(rru_model *model, key_run *run, int32_t key) {
  const size_t size = state_size(model, &model->over_keys), place = (size_t)(key + 1) * size;
  model->keys_on[key] = 1;
  if (model->numbers[RRU_HEAD] != TIED) return run;
  if (run == &model->silent) copy(model->sounding.states + place, run->states + place, size);
  model->sounding.count = key + 1;
  return &model->sounding;
}

static void turn_all_off(rru_model *model) {
  int32_t i;
  for (i = 0; i < model->numbers[RRU_KEYS]; ++i) model->keys_on[i] = 0;
}

static double chance_of(double logit) { return 1 / (1 + exp_double(-logit)); }

/* Draw key by key; return how many are on. */
static int draw_in_turn(rru_model *model) {
  key_run *run = &model->silent;
  int32_t key;
  int count = 0;
  turn_all_off(model);
  for (key = 0; key < model->numbers[RRU_KEYS]; ++key) {
    if (run->count <= key) run_keys(model, run, key + 1);
    if (!(rru_random(model) < chance_of(run->logits[key]))) continue;
    run = turn_on(model, run, key);
    ++count;
  }
  return count;
}

void rru_chances(rru_model *model, float *chances) {
  const int32_t count = model->numbers[RRU_LOGITS];
  const float *logits = model->logits;
  double total = 0;
  float largest;
  int32_t i;
  if (model->numbers[RRU_KIND] == RRU_OF_MUSIC) {
    if (model->numbers[RRU_HEAD] == TIED) {
      turn_all_off(model);
      run_keys(model, &model->silent, model->numbers[RRU_KEYS]);
      logits = model->silent.logits;
    }
    for (i = 0; i < model->numbers[RRU_KEYS]; ++i) chances[i] = (float)chance_of(logits[i]);
    return;
  }
  for (largest = logits[0], i = 1; i < count; ++i) largest = logits[i] > largest ? logits[i] : largest;
  for (i = 0; i < count; ++i) total += exp_double((double)logits[i] - largest);
  for (i = 0; i < count; ++i) chances[i] = (float)(exp_double((double)logits[i] - largest) / total);
}

uint32_t rru_token(rru_model *model, float temperature, uint32_t most) {
  const int32_t count = model->numbers[RRU_LOGITS];
  const float *const logits = model->logits;
  float largest = 0, least = 0;
  double total = 0, place;
  uint32_t taken = 0;
  int32_t i, last = -1, rounds = 0;
  temperature = usable(temperature);
  do { /* find the lowest logit that may be drawn: the largest, the largest below it, ... */
    const float above = least;
    int found = 0;
    for (i = 0; i < count; ++i)
      if (is_written(model, i) && (!rounds || logits[i] < above) && (!found || logits[i] > least)) {
        least = logits[i];
        found = 1;
      }
    if (!found) break;
    if (!rounds++) largest = least;
    for (i = 0; i < count; ++i) taken += is_written(model, i) && logits[i] == least;
  } while (taken < most);
  for (i = 0; i < count; ++i)
    if (is_written(model, i) && (!most || logits[i] >= least))
      total += exp_double(((double)logits[i] - largest) / temperature);
  place = rru_random(model) * total;
  for (i = 0; i < count; ++i) {
    if (!is_written(model, i) || (most && logits[i] < least)) continue;
    last = i;
    place -= exp_double(((double)logits[i] - largest) / temperature);
    if (place < 0) break;
  }
  return (uint32_t)(last < 0 ? 0 : last);
}

static int32_t key_at(const rru_model *model, int32_t place) {
  return model->order ? (int32_t)model->order[place] : place;
}

/* Return the logits of the keys that follow those that are on (`keys_on`), with a joint head; tied: of those before key
 * `end`, in a run. */
static const float *follow(rru_model *model, key_run *run, int32_t end) {
  const int32_t keys = model->numbers[RRU_KEYS];
  const float *source = model->keys_on;
  int32_t i;
  if (model->numbers[RRU_HEAD] == TIED) {
    run_keys(model, run, end);
    return run->logits;
  }
  if (model->numbers[RRU_HEAD] == NADE) { /* a hidden layer between */
    multiply(model, &model->to_units, source, model->other);
    for (i = 0; i < model->to_units.rows; ++i) model->other[i] += model->logits[keys + i];
    relu(model->other, model->to_units.rows);
    source = model->other;
  }
  multiply(model, &model->to_keys, source, model->wide);
  for (i = 0; i < keys; ++i) model->wide[i] += model->logits[i];
  return model->wide;
}

/* Draw the next key that is on, or that there is none, until there is none. A temperature changes which key is next,
 * not whether there is one. Return how many are on. */
static int draw_jointly(rru_model *model, double temperature) {
  const int32_t keys = model->numbers[RRU_KEYS];
  double *const chances = model->chances;
  key_run *run = &model->silent;
  int32_t i, last = -1;
  int count = 0;
  turn_all_off(model);
  while (last + 1 < keys) {
    const float *const logits = follow(model, run, keys);
    double none = 0, largest = -1e300, total = 0, place;
    int32_t chosen = -1;
    for (i = last + 1; i < keys; ++i) { /* the logarithm of the chance that key i is the next */
      const double logit = logits[key_at(model, i)];
      chances[i] = (none - softplus(-logit)) / temperature;
      none -= softplus(logit);
      largest = chances[i] > largest ? chances[i] : largest;
    }
    for (i = last + 1; i < keys; ++i) total += chances[i] = exp_double(chances[i] - largest);
    none = exp_double(none);
    place = rru_random(model);
    if (!(place < 1 - none)) break;
    place *= total / (1 - none);
    for (i = last + 1; i < keys; ++i) {
      if (chances[i] > 0) chosen = i;
      place -= chances[i];
      if (place < 0) break;
    }
    if (chosen < 0) break;
    last = chosen;
    run = turn_on(model, run, key_at(model, last));
    ++count;
  }
  return count;
}

static int draw_chord(rru_model *model, double temperature, uint8_t *chord) {
  const int32_t keys = model->numbers[RRU_KEYS], head = model->numbers[RRU_HEAD];
  int32_t i;
  int count = 0;
  if (head > OF_STATE)
    count = head == TIED && temperature == 1 ? draw_in_turn(model) : draw_jointly(model, temperature);
  for (i = 0; i < keys; ++i) {
    if (head > OF_STATE)
      chord[i] = model->keys_on[i] > 0;
    else
      count += chord[i] = rru_random(model) < chance_of((double)model->logits[i] / temperature);
  }
  return count;
}

double rru_nats(rru_model *model, const uint8_t *chord) {
  const int32_t keys = model->numbers[RRU_KEYS], head = model->numbers[RRU_HEAD];
  const float *logits = model->logits;
  key_run *run = &model->silent;
  double sum = 0;
  int32_t i, changed = head > OF_STATE;
  if (keys) turn_all_off(model);
  for (i = 0; i < keys; ++i) {
    const int32_t key = key_at(model, i);
    if (changed || head == TIED) logits = follow(model, run, key + 1);
    sum += softplus(chord[key] ? -(double)logits[key] : (double)logits[key]);
    changed = head > OF_STATE && chord[key];
    if (changed) run = turn_on(model, run, key);
  }
  return sum;
}

int rru_chord(rru_model *model, float temperature, int voices, uint8_t *chord) {
  const int most = model->numbers[RRU_HEAD] == TIED ? TIED_TRIES : TRIES;
  int tries, count, wanted = voices ? voices : -1, nearest = -1;
  uint64_t best = 0, after;
  if (model->numbers[RRU_KIND] != RRU_OF_MUSIC) return 0;
  temperature = usable(temperature);
  if (wanted < 0 && model->numbers[RRU_HEAD] > OF_STATE && temperature != 1)
    wanted = draw_chord(model, 1, chord); /* the number of voices does not depend on the temperature */
  if (wanted < 0) return draw_chord(model, temperature, chord);
  for (tries = 0; tries < most; ++tries) {
    const uint64_t before = model->random;
    int away;
    count = draw_chord(model, temperature, chord);
    away = count > wanted ? count - wanted : wanted - count;
    if (!away) return count;
    if (nearest < 0 || away < nearest) {
      nearest = away;
      best = before;
    }
  }
  after = model->random;
  model->random = best; /* draw the nearest again */
  count = draw_chord(model, temperature, chord);
  model->random = after;
  return count;
}

/* ---------------------------------------------------------------- series */

rru_scaling rru_scaling_of(const rru_model *model, uint32_t series) {
  rru_scaling scaling = {0, 0, 1, -1e300, 1};
  if (model->scalings && series < (uint32_t)model->numbers[RRU_SERIES]) {
    const double *const numbers = model->scalings + 4 * (size_t)series;
    scaling.floor = numbers[0];
    scaling.centre = numbers[1];
    scaling.unit = numbers[2];
    scaling.least = numbers[3];
    scaling.width = model->widths[series];
  }
  return scaling;
}

/* Fill missing values from a season before, shifted to the present level; the shift fades within a season. Put the
 * scaled values of the last `context` steps and whether they are known into `window`: (context, 2). */
static size_t fill(rru_model *model, double *values, size_t count, size_t *first) {
  const size_t season = (size_t)model->numbers[RRU_SEASON], context = (size_t)model->numbers[RRU_CONTEXT];
  double lowest, highest;
  size_t t, last;
  for (*first = 0; *first < count && is_nan(values[*first]); ++*first) continue;
  values += *first;
  count -= *first;
  if (!count) return 0;
  last = 0;
  lowest = highest = values[0];
  for (t = 0; t < count; ++t) {
    const int known = !is_nan(values[t]);
    if (known) {
      last = t;
      lowest = values[t] < lowest ? values[t] : lowest;
      highest = values[t] > highest ? values[t] : highest;
    } else if (season == 1 || last < season) {
      values[t] = values[last];
    } else {
      const double share = 1 - (double)(t - last) / (double)season;
      double guess = values[t - season] + (share > 0 ? share : 0) * (values[last] - values[last - season]);
      guess = guess < lowest ? lowest : guess;
      values[t] = guess > highest ? highest : guess;
    }
    if (t + context >= count) model->window[2 * (t + context - count) + 1] = (float)known;
  }
  return count;
}

static double scaled(const rru_scaling *scaling, double value) {
  if (scaling->floor > 0) value = log_double(value > scaling->floor ? value : scaling->floor);
  return (value - scaling->centre) / scaling->unit;
}

static float standardized(const rru_model *model, const float *inputs, size_t step, size_t number) {
  const size_t count = (size_t)(model->numbers[RRU_PAST] + model->numbers[RRU_KNOWN]);
  const int future = step >= (size_t)model->numbers[RRU_CONTEXT] && number < (size_t)model->numbers[RRU_PAST];
  const double raw = inputs ? inputs[step * count + number] : model->means[number];
  const double value = (raw - model->means[number]) / model->deviations[number];
  if (future || is_nan(value)) return 0;
  return (float)(value < -10 ? -10 : value > 10 ? 10 : value);
}

/* Return the logarithm of the mean absolute seasonal difference of the window. */
static float variability(const rru_model *model, const float *centred) {
  const size_t context = (size_t)model->numbers[RRU_CONTEXT], season = (size_t)model->numbers[RRU_SEASON];
  const size_t lag = season < context ? season : 1;
  double sum = 0, both = 0;
  size_t t;
  if (context <= lag) return 0;
  for (t = lag; t < context; ++t) {
    const double pair = (double)model->window[2 * t + 1] * model->window[2 * (t - lag) + 1];
    const double difference = (double)centred[t] - centred[t - lag];
    sum += pair * (difference < 0 ? -difference : difference);
    both += pair;
  }
  return (float)log_double(sum / (both < 1 ? 1 : both) + 0.01);
}

/* Add the correction and the raw distances of a member to `raw`, (horizon, 5). */
static void correct(rru_model *model, const member *each, const float *centred, const float *inputs, float *raw) {
  const size_t context = (size_t)model->numbers[RRU_CONTEXT], horizon = (size_t)model->numbers[RRU_HORIZON];
  const size_t patch = (size_t)model->numbers[RRU_PATCH], past = (size_t)model->numbers[RRU_PAST];
  const size_t known = (size_t)model->numbers[RRU_KNOWN], p = (size_t)model->numbers[RRU_OUTPUTS];
  const float size = variability(model, centred);
  size_t first, t, i;
  reset_state(model, &each->over_time, model->state);
  for (first = 0; first < context; first += patch) {
    float *x = model->both;
    double sum = 0;
    for (t = 0; t < patch; ++t) {
      const float value = centred[first + t];
      *x++ = value < -20 ? -20 : value > 20 ? 20 : value;
      sum += model->window[2 * (first + t) + 1];
    }
    *x++ = size;
    *x++ = (float)(sum / (double)patch);
    for (i = 0; i < past + known; ++i) {
      for (sum = 0, t = 0; t < patch; ++t) sum += standardized(model, inputs, first + t, i);
      *x++ = (float)(sum / (double)patch);
    }
    run_layers(model, &each->over_time, 0, 1, model->output);
  }
  multiply(model, &each->head, model->output, model->logits);
  for (i = 0; i < horizon * QUANTILES; ++i) raw[i] += model->logits[i];
  multiply(model, &each->change, centred, model->logits);
  for (i = 0; i < horizon; ++i) raw[i * QUANTILES + MEDIAN] += model->logits[i];
  for (t = 0; known && t < horizon; ++t) {
    copy(model->both, model->output, p);
    for (i = 0; i < known; ++i) model->both[p + i] = standardized(model, inputs, context + t, past + i);
    multiply(model, &each->known_units, model->both, model->wide);
    relu(model->wide, KNOWN_UNITS);
    multiply(model, &each->known_head, model->wide, model->other);
    for (i = 0; i < QUANTILES; ++i) raw[t * QUANTILES + i] += model->other[i];
  }
}

/* Return the limits of an interval: how far they are from the median on one side, in increasing order. */
static void distances(const float *raw, int step, const float *widening, double limits[2]) {
  const double inner = softplus(raw[0]), outer = inner + softplus(raw[step]);
  limits[0] = inner * widening[0];
  limits[1] = outer * widening[1];
  if (limits[1] < limits[0]) limits[1] = limits[0];
}

int rru_forecast(rru_model *model, const rru_scaling *scaling, double *values, size_t count, const float *inputs,
                 double *quantiles) {
  const size_t context = (size_t)model->numbers[RRU_CONTEXT], horizon = (size_t)model->numbers[RRU_HORIZON];
  const size_t past = (size_t)model->numbers[RRU_PAST], known = (size_t)model->numbers[RRU_KNOWN];
  const float members = (float)model->numbers[RRU_MEMBERS];
  float *const centred = model->window + 2 * context, *const raw = centred + context, *const start = raw + horizon * 5;
  float level = 0;
  size_t t, i, skipped;
  if (model->numbers[RRU_KIND] != RRU_OF_SERIES) return 0;
  for (t = 0; t < context; ++t) model->window[2 * t + 1] = 0;
  if (!(count = fill(model, values, count, &skipped))) return 0;
  values += skipped;
  for (t = 0; t < context; ++t) { /* steps before the series repeat its first */
    const size_t place = t + count < context ? 0 : t + count - context;
    centred[t] = (float)scaled(scaling, values[place]);
    for (i = 0; i < known; ++i) centred[t] -= model->effects[i] * standardized(model, inputs, t, past + i);
    level += model->level[t] * centred[t];
  }
  for (t = 0; t < context; ++t) centred[t] -= level;
  multiply(model, &model->start, centred, start);
  for (t = 0; t < horizon * QUANTILES; ++t) raw[t] = 0;
  for (i = 0; i < (size_t)model->numbers[RRU_MEMBERS]; ++i) correct(model, model->members + i, centred, inputs, raw);
  for (t = 0; t < horizon * QUANTILES; ++t) raw[t] /= members;
  for (t = 0; t < horizon; ++t) {
    double *const at = quantiles + t * QUANTILES, below[2], above[2], median = (double)start[t] + level;
    for (i = 0; i < known; ++i)
      median += (double)model->effects[i] * standardized(model, inputs, context + t, past + i);
    median += (double)model->trust[0] * raw[t * QUANTILES + MEDIAN];
    distances(raw + t * QUANTILES + MEDIAN - 1, -1, model->trust + 1, below);
    distances(raw + t * QUANTILES + MEDIAN + 1, 1, model->trust + 1, above);
    at[0] = median - below[1] * (double)scaling->width;
    at[1] = median - below[0] * (double)scaling->width;
    at[2] = median;
    at[3] = median + above[0] * (double)scaling->width;
    at[4] = median + above[1] * (double)scaling->width;
    for (i = 0; i < QUANTILES; ++i) {
      at[i] = at[i] * scaling->unit + scaling->centre;
      if (scaling->floor > 0) at[i] = exp_double(at[i]);
      if (at[i] < scaling->least) at[i] = scaling->least;
    }
  }
  return 1;
}

/* ---------------------------------------------------------------- reading a blob */

#define VERSION 2
#define HEADER 6 /* words: magic, version, bytes, checksum, numbers, tensors */
#define ENTRY 8  /* words of a tensor in the table: four of its name, type, rows, columns, offset */
#define LARGEST (1 << 24)
#define MAX_TIED_KEYS 128 /* MIDI has no more notes */

typedef struct {
  const uint8_t *blob;
  const uint32_t *table;
  uint32_t left;
  uint32_t bytes;
  int failed;
  int32_t rows, columns; /* the largest of all matrices */
  int32_t both;          /* the largest inputs and state of a layer */
} reader;

typedef struct {
  uint8_t *memory; /* NULL to count only */
  size_t used;
} arena;

static void *get(arena *from, size_t count, size_t bytes) {
  void *const place = from->memory ? from->memory + from->used : NULL;
  from->used += padded(count * bytes, 16);
  return place;
}

/* Return the next tensor, which must be of this type and shape. */
static const void *take(reader *from, tensor_type type, size_t rows, size_t columns) {
  const uint32_t *const entry = from->table;
  uint64_t size = (uint64_t)rows * columns;
  if (type == COLUMNS_F32) size = (uint64_t)padded(rows, 4) * columns * 4;
  if (type == BLOCKS_I8) size = (uint64_t)padded(rows, LINES) * padded(columns, CODES);
  if (type == ROWS_F32 || type == WHOLE_U32) size *= 4;
  if (type == ROWS_F64) size *= 8;
  if (from->failed || !from->left || entry[4] != (uint32_t)type || entry[5] != rows || entry[6] != columns ||
      entry[7] % 16 || entry[7] > from->bytes || size > from->bytes - entry[7]) {
    from->failed = 1;
    return NULL;
  }
  from->table += ENTRY;
  --from->left;
  return from->blob + entry[7];
}

static int next_is(const reader *from, tensor_type type) { return from->left && from->table[4] == (uint32_t)type; }

static matrix take_matrix(reader *from, int32_t rows, int32_t columns) {
  matrix w = {0, 0, NULL, NULL, NULL, NULL};
  w.rows = rows;
  w.columns = columns;
  if (next_is(from, BLOCKS_I8)) {
    w.codes = (const int8_t *)take(from, BLOCKS_I8, (size_t)rows, (size_t)columns);
    w.scales = (const float *)take(from, ROWS_F32, (size_t)rows, 1);
  } else {
    w.weights = (const float *)take(from, COLUMNS_F32, (size_t)rows, (size_t)columns);
  }
  w.bias = (const float *)take(from, ROWS_F32, (size_t)rows, 1);
  from->rows = rows > from->rows ? rows : from->rows;
  from->columns = columns > from->columns ? columns : from->columns;
  return w;
}

/* Return the rows of the next matrix, a number that no other number of the model tells. */
static int32_t next_rows(reader *from) {
  if (!from->left || from->table[5] < 1 || from->table[5] > LARGEST) from->failed = 1;
  return from->failed ? 1 : (int32_t)from->table[5];
}

static void take_rounds(reader *from, layer *into, matrix *more, int32_t rounds, int32_t n, int32_t rank) {
  int32_t round, place = 0;
  for (round = 0; round < rounds && !from->failed; ++round) {
    const int32_t source = round % 2 ? into->inputs : n, target = round % 2 ? n : into->inputs;
    matrix w;
    if (rank) {
      w = take_matrix(from, rank, source);
      if (more) more[place++] = w;
    }
    w = take_matrix(from, target, rank ? rank : source);
    if (more) more[place++] = w;
  }
}

static layer take_layer(reader *from, arena *memory, const rru_model *model, const network *of, int32_t inputs) {
  const int32_t n = of->hidden, p = of->outputs, option = model->numbers[RRU_OPTION];
  const int32_t rank = model->numbers[RRU_NORMALIZE], cell = model->numbers[RRU_CELL], both = inputs + n;
  layer into = {0, {0, 0, NULL, NULL, NULL, NULL}, {0, 0, NULL, NULL, NULL, NULL}, NULL, NULL, NULL, NULL};
  int32_t k;
  into.inputs = inputs;
  if (cell == 0) {
    const int32_t g = next_rows(from);
    into.more = (matrix *)get(memory, (size_t)option, sizeof(matrix));
    into.first = take_matrix(from, g, both);
    for (k = 1; k < option && !from->failed; ++k) {
      const matrix w = take_matrix(from, g, g);
      if (into.more) into.more[k - 1] = w;
    }
    into.last = take_matrix(from, n + p, g);
    into.kept = (const float *)take(from, ROWS_F32, (size_t)n, 1);
    into.z = (const float *)take(from, ROWS_F32, (size_t)n, 1);
  } else if (cell == 1) {
    into.first = take_matrix(from, option ? 3 * n : 2 * n, option ? inputs : both);
    into.last = take_matrix(from, option ? 3 * n : n, option ? n : both);
    from->rows = 3 * n > from->rows ? 3 * n : from->rows;
  } else {
    into.first = take_matrix(from, 4 * n, both);
    if (cell == 3) {
      into.more = (matrix *)get(memory, (size_t)option * (rank ? 2 : 1), sizeof(matrix));
      take_rounds(from, &into, into.more, option, n, rank);
    }
  }
  into.initial = (const float *)take(from, ROWS_F32, (size_t)model->parts, (size_t)n);
  return into;
}

/* Take the layers of a network whose sizes are known. */
static void take_layers(reader *from, arena *memory, const rru_model *model, network *into) {
  const int32_t count = model->numbers[RRU_LAYERS], both = into->inputs + into->hidden;
  int32_t i;
  into->layers = (layer *)get(memory, (size_t)count, sizeof(layer));
  for (i = 0; i < count && !from->failed; ++i) {
    const layer each = take_layer(from, memory, model, into, i ? into->outputs : into->inputs);
    if (into->layers) into->layers[i] = each;
  }
  from->both = both > from->both ? both : from->both;
}

static member take_member(reader *from, arena *memory, const rru_model *model) {
  const int32_t *const numbers = model->numbers;
  const int32_t n = numbers[RRU_HIDDEN], p = numbers[RRU_OUTPUTS], horizon = numbers[RRU_HORIZON];
  const int32_t head = numbers[RRU_HEAD], tied = head == TIED;
  member into;
  into.over_time.inputs = tied ? 2 * numbers[RRU_AROUND] + 1 + OF_KEY + numbers[RRU_BAR] : numbers[RRU_INPUTS];
  into.over_time.hidden = n;
  into.over_time.outputs = p;
  into.over_time.rows = tied ? numbers[RRU_KEYS] : 1;
  into.over_time.state = NULL;
  take_layers(from, memory, model, &into.over_time);
  into.head.rows = 0;
  if (head != NO_HEAD && !tied) into.head = take_matrix(from, numbers[RRU_LOGITS], head == OF_STATE ? n : p);
  into.change = into.known_units = into.known_head = into.head;
  if (head == FORECASTS) {
    into.change = take_matrix(from, horizon, numbers[RRU_CONTEXT]);
    if (numbers[RRU_KNOWN]) {
      into.known_units = take_matrix(from, KNOWN_UNITS, p + numbers[RRU_KNOWN]);
      into.known_head = take_matrix(from, QUANTILES, KNOWN_UNITS);
    }
  }
  return into;
}

/* Take the network over keys and its head, and memory for its runs. */
static void take_tied(reader *from, arena *memory, rru_model *model) {
  const size_t keys = (size_t)model->numbers[RRU_KEYS];
  network *const net = &model->over_keys;
  size_t states;
  net->inputs = model->numbers[RRU_OUTPUTS] + model->numbers[RRU_BELOW] + OF_KEY;
  net->hidden = model->numbers[RRU_CHORD_HIDDEN];
  net->outputs = model->numbers[RRU_CHORD_OUTPUTS];
  net->rows = 1;
  take_layers(from, memory, model, net);
  model->to_keys = take_matrix(from, 1, net->outputs);
  states = (keys + 1) * state_size(model, net);
  model->silent.states = (float *)get(memory, states, sizeof(float));
  model->silent.logits = (float *)get(memory, keys, sizeof(float));
  model->sounding.states = (float *)get(memory, states, sizeof(float));
  model->sounding.logits = (float *)get(memory, keys, sizeof(float));
}

/* Take what only some kinds of models have. */
static void take_kind(reader *from, arena *memory, rru_model *model) {
  const int32_t *const numbers = model->numbers;
  const int32_t keys = numbers[RRU_KEYS], units = numbers[RRU_LOGITS] - keys;
  const size_t series = (size_t)numbers[RRU_SERIES], inputs = (size_t)(numbers[RRU_PAST] + numbers[RRU_KNOWN]);
  int32_t i;
  if (numbers[RRU_HEAD] == TIED) take_tied(from, memory, model);
  if (numbers[RRU_HEAD] == CHAIN || numbers[RRU_HEAD] == NADE) {
    model->order = (const uint32_t *)take(from, WHOLE_U32, (size_t)keys, 1);
    for (i = 0; !from->failed && i < keys; ++i) from->failed = model->order[i] >= (uint32_t)keys;
    if (numbers[RRU_HEAD] == NADE) model->to_units = take_matrix(from, units, keys);
    model->to_keys = take_matrix(from, keys, numbers[RRU_HEAD] == NADE ? units : keys);
  }
  if (numbers[RRU_HEAD] == FORECASTS) {
    model->level = (const float *)take(from, ROWS_F32, (size_t)numbers[RRU_CONTEXT], 1);
    model->start = take_matrix(from, numbers[RRU_HORIZON], numbers[RRU_CONTEXT]);
    if (numbers[RRU_KNOWN]) model->effects = (const float *)take(from, ROWS_F32, (size_t)numbers[RRU_KNOWN], 1);
    model->trust = (const float *)take(from, ROWS_F32, 3, 1);
    model->widths = (const float *)take(from, ROWS_F32, series, 1);
    model->scalings = (const double *)take(from, ROWS_F64, series, 4);
  }
  if (numbers[RRU_SCALED] || inputs) {
    const size_t count = numbers[RRU_SCALED] ? (size_t)numbers[RRU_INPUTS] : inputs;
    model->means = (const double *)take(from, ROWS_F64, count, 1);
    model->deviations = (const double *)take(from, ROWS_F64, count, 1);
  }
  if (numbers[RRU_NAMES]) {
    const uint32_t count = (uint32_t)numbers[RRU_NAMES];
    const uint32_t *const starts = (const uint32_t *)take(from, WHOLE_U32, count + 1, 1);
    uint32_t at;
    if (from->failed) return;
    for (at = 0; at < count; ++at) from->failed |= starts[at] > starts[at + 1];
    model->name_starts = starts;
    model->names = (const char *)take(from, BYTES, starts[count], 1);
    from->failed |= starts[0] != 0;
  }
}

static int is_valid_tied(const int32_t *numbers) {
  const int32_t keys = numbers[RRU_KEYS], n = numbers[RRU_CHORD_HIDDEN], p = numbers[RRU_CHORD_OUTPUTS];
  if (numbers[RRU_HEAD] != TIED) return !numbers[RRU_AROUND] && !numbers[RRU_BELOW] && !numbers[RRU_BAR] && !n && !p;
  return numbers[RRU_KIND] == RRU_OF_MUSIC && keys <= MAX_TIED_KEYS && numbers[RRU_AROUND] < MAX_TIED_KEYS &&
         numbers[RRU_BELOW] < MAX_TIED_KEYS && n && p && (numbers[RRU_CELL] == 0 || n == p) &&
         numbers[RRU_LOGITS] % numbers[RRU_OUTPUTS] == 0 && numbers[RRU_LOGITS] / numbers[RRU_OUTPUTS] == keys;
}

static int is_valid(const int32_t *numbers) {
  const int32_t head = numbers[RRU_HEAD], kind = numbers[RRU_KIND], tokens = numbers[RRU_TOKENS];
  const int32_t keys = numbers[RRU_KEYS], logits = numbers[RRU_LOGITS], cell = numbers[RRU_CELL];
  int i;
  for (i = 0; i < RRU_NUMBERS; ++i)
    if (numbers[i] < 0 || numbers[i] > LARGEST) return 0;
  if (kind > RRU_OF_SERIES || cell > 3 || head > TIED || numbers[RRU_LAYERS] < 1 || numbers[RRU_LAYERS] > 1000)
    return 0;
  if (!numbers[RRU_INPUTS] || !numbers[RRU_HIDDEN] || !numbers[RRU_OUTPUTS] || !numbers[RRU_MEMBERS]) return 0;
  if (numbers[RRU_OPTION] > 1000 || (cell == 0 && !numbers[RRU_OPTION])) return 0;
  if (cell != 0 && numbers[RRU_OUTPUTS] != numbers[RRU_HIDDEN]) return 0;
  if (tokens && (numbers[RRU_UNKNOWN] >= tokens || numbers[RRU_PADDING] >= tokens)) return 0;
  if ((head == NO_HEAD) != (kind == RRU_OF_LAYERS) || (head == FORECASTS) != (kind == RRU_OF_SERIES)) return 0;
  if (logits != (head == NO_HEAD ? numbers[RRU_OUTPUTS] : head == FORECASTS ? QUANTILES * numbers[RRU_HORIZON] : logits)) return 0;
  if (!logits || (kind == RRU_OF_TEXT && logits != tokens)) return 0;
  if ((kind == RRU_OF_MUSIC) != (keys > 0) || (keys && keys != numbers[RRU_INPUTS]) || (keys && tokens)) return 0;
  if (keys && head != TIED && (head == NADE ? logits <= keys : logits != keys)) return 0;
  if ((head == CHAIN || head == NADE) && !keys) return 0;
  if (!is_valid_tied(numbers)) return 0;
  if (kind != RRU_OF_SERIES) return numbers[RRU_MEMBERS] == 1 && !numbers[RRU_PAST] && !numbers[RRU_KNOWN];
  return numbers[RRU_PATCH] && numbers[RRU_CONTEXT] && numbers[RRU_CONTEXT] % numbers[RRU_PATCH] == 0 &&
         numbers[RRU_HORIZON] && numbers[RRU_SEASON] && numbers[RRU_SERIES] && !tokens && !numbers[RRU_SCALED] &&
         numbers[RRU_INPUTS] == numbers[RRU_PATCH] + 2 + numbers[RRU_PAST] + numbers[RRU_KNOWN];
}

static void take_embedding(reader *from, rru_model *model) {
  const size_t tokens = (size_t)model->numbers[RRU_TOKENS], m = (size_t)model->numbers[RRU_INPUTS];
  if (!tokens) return;
  if (next_is(from, ROWS_I8)) {
    model->embedding_codes = (const int8_t *)take(from, ROWS_I8, tokens, m);
    model->embedding_scales = (const float *)take(from, ROWS_F32, tokens, 1);
  } else {
    model->embedding = (const float *)take(from, ROWS_F32, tokens, m);
  }
}

/* Take all tensors, and memory for what a step computes. */
static void build(reader *from, arena *memory, rru_model *model) {
  const int32_t *const numbers = model->numbers;
  const size_t context = (size_t)numbers[RRU_CONTEXT], horizon = (size_t)numbers[RRU_HORIZON];
  const size_t keys = (size_t)numbers[RRU_KEYS], known = (size_t)(numbers[RRU_OUTPUTS] + numbers[RRU_KNOWN]);
  const int tied = numbers[RRU_HEAD] == TIED;
  const size_t rows = tied ? ROWS : 1, all_rows = tied ? keys : 1;
  const size_t logits = (size_t)numbers[tied ? RRU_CHORD_OUTPUTS : RRU_LOGITS];
  size_t wide, state;
  int32_t i;
  model->parts = numbers[RRU_CELL] > 1 ? 2 : 1;
  take_embedding(from, model);
  model->members = (member *)get(memory, (size_t)numbers[RRU_MEMBERS], sizeof(member));
  for (i = 0; i < numbers[RRU_MEMBERS] && !from->failed; ++i) {
    const member each = take_member(from, memory, model);
    if (model->members) model->members[i] = each;
  }
  take_kind(from, memory, model);
  from->failed |= from->left != 0;
  if (from->failed) return;
  wide = (size_t)(from->rows > from->both ? from->rows : from->both);
  model->stride = padded(wide > known ? wide : known, 4);
  state = (size_t)numbers[RRU_LAYERS] * (size_t)model->parts * all_rows * (size_t)numbers[RRU_HIDDEN];
  model->state = (float *)get(memory, state + (numbers[RRU_BAR] > 0), sizeof(float));
  model->both = (float *)get(memory, rows * model->stride, sizeof(float));
  model->wide = (float *)get(memory, rows * model->stride, sizeof(float));
  model->other = (float *)get(memory, rows * model->stride, sizeof(float));
  model->output = (float *)get(memory, all_rows * (size_t)numbers[RRU_OUTPUTS], sizeof(float));
  model->logits = (float *)get(memory, padded(logits, 4), sizeof(float));
  model->whole = (int16_t *)get(memory, rows * padded((size_t)from->columns, CODES), sizeof(int16_t));
  model->keys_on = (float *)get(memory, keys, sizeof(float));
  model->chances = (double *)get(memory, keys, sizeof(double));
  if (numbers[RRU_KIND] == RRU_OF_SERIES)
    model->window = (float *)get(memory, 3 * context + QUANTILES * horizon + padded(horizon, 4), sizeof(float));
  for (i = 0; model->members && i < numbers[RRU_MEMBERS]; ++i) model->members[i].over_time.state = model->state;
}

static uint32_t checksum(const uint8_t *bytes, size_t count) { /* CRC-32, half a byte at a time */
  uint32_t table[16], crc = 0xffffffffu;
  uint32_t i, bit;
  size_t at;
  for (i = 0; i < 16; ++i) {
    table[i] = i;
    for (bit = 0; bit < 4; ++bit) table[i] = table[i] & 1 ? 0xedb88320u ^ (table[i] >> 1) : table[i] >> 1;
  }
  for (at = 0; at < count; ++at) {
    crc ^= bytes[at];
    crc = table[crc & 15] ^ (crc >> 4);
    crc = table[crc & 15] ^ (crc >> 4);
  }
  return ~crc;
}

/* Read a blob; return the bytes of memory that the model takes, 0 if it cannot be used. */
static size_t read_blob(const void *blob, size_t bytes, uint8_t *memory, rru_model *model, rru_status *status) {
  static const rru_model empty;
  const uint32_t *const words = (const uint32_t *)blob;
  reader from = {NULL, NULL, 0, 0, 0, 0, 0, 0};
  arena room = {NULL, 0};
  uint32_t i;
  *status = RRU_MISALIGNED;
  if ((uintptr_t)blob % 8) return 0;
  *status = RRU_NOT_A_MODEL;
  if (bytes < HEADER * 4) return 0;
  if (words[0] == 0x5252554dU) *status = RRU_MISALIGNED; /* the other order of bytes */
  if (words[0] != 0x4d555252U) return 0;
  *status = RRU_OTHER_VERSION;
  if (words[1] != VERSION) return 0;
  *status = RRU_TRUNCATED;
  if (words[2] != bytes) return 0;
  *status = RRU_MALFORMED;
  if (words[4] != RRU_NUMBERS || words[5] > bytes / (ENTRY * 4)) return 0;
  if ((HEADER + RRU_NUMBERS + (size_t)words[5] * ENTRY) * 4 > bytes) return 0;
  *model = empty;
  for (i = 0; i < RRU_NUMBERS; ++i) model->numbers[i] = (int32_t)words[HEADER + i];
  if (!is_valid(model->numbers)) return 0;
  from.blob = (const uint8_t *)blob;
  from.table = words + HEADER + RRU_NUMBERS;
  from.left = words[5];
  from.bytes = words[2];
  room.memory = memory;
  build(&from, &room, model);
  if (from.failed) return 0;
  *status = RRU_OK;
  return room.used;
}

size_t rru_size(const void *blob, size_t blob_bytes, rru_status *status) {
  rru_model model;
  const size_t used = read_blob(blob, blob_bytes, NULL, &model, status);
  return used ? used + padded(sizeof(rru_model), 16) + 15 : 0;
}

rru_model *rru_init(const void *blob, size_t blob_bytes, void *memory, size_t memory_bytes, rru_status *status) {
  const size_t needed = rru_size(blob, blob_bytes, status);
  uint8_t *const start = (uint8_t *)memory + (16 - (uintptr_t)memory % 16) % 16;
  rru_model *const model = (rru_model *)(void *)start;
  if (!needed) return NULL;
  *status = RRU_DAMAGED;
  if (checksum((const uint8_t *)blob + 16, blob_bytes - 16) != ((const uint32_t *)blob)[3]) return NULL;
  *status = RRU_NO_ROOM;
  if (!memory || memory_bytes < needed) return NULL;
  read_blob(blob, blob_bytes, start + padded(sizeof(rru_model), 16), model, status);
  rru_reset(model);
  return model;
}

const char *rru_message(rru_status status) {
  switch (status) {
    case RRU_OK:
      return "the model is ready";
    case RRU_NOT_A_MODEL:
      return "this is not a model that rru exported";
    case RRU_OTHER_VERSION:
      return "the model was exported by another version of rru: export it again";
    case RRU_TRUNCATED:
      return "the model is not complete: its size is not the one that it should have";
    case RRU_DAMAGED:
      return "the model is damaged: its checksum is wrong";
    case RRU_MALFORMED:
      return "the model is malformed: its tensors are not those that its numbers say";
    case RRU_MISALIGNED:
      return "the model must be aligned to 8 bytes, and the processor little-endian";
    default:
      return "the memory is smaller than rru_size says";
  }
}
