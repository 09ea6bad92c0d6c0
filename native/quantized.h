// Scans with int8 weights, for inference with a few sequences, where reading the weights takes most of the time.
//
// A weight is a code from -127 to 127 times the scale of its row. Each product rounds its input rows to integers of up to
// 16 bits, with one scale per row, so small that sums of products fit 32 bits. Sums are exact, so results are the same
// for every instruction set. Everything else is computed in float. On one thread; without dropout.
#pragma once
#include "rru.h"

namespace rru::RRU_ISA {

// Codes are stored in the order in which a product reads them: 16 codes of each of 4 rows, then the next 16 of these
// rows, and so on; padded with zeros.
constexpr int kCodesTogether = 16, kLines = 4;

struct QuantizedMatrix {
  int rows, depth, padded;
  const int8_t* codes;         // (rows / 4, padded / 16, 4, 16), with rows / 4 rounded up
  const float *scales, *bias;  // (rows,)

  QuantizedMatrix(Arguments& in, int rows, int depth)
      : rows(rows),
        depth(depth),
        padded(round_up(depth, kCodesTogether)),
        codes(in.tensor<const int8_t>("codes", {round_up(rows, kLines), padded})),
        scales(in.tensor<const float>("scales", {rows})),
        bias(in.tensor<const float>("bias", {rows})) {
    if (depth > 1 << 20) throw Mismatch("a quantized matrix may have at most 1048576 columns");
  }
};

// Rows of whole numbers, each with a scale.
struct WholeRows {
  std::vector<int16_t> numbers;
  std::vector<float> scales;

  // Round rows of floats for a product with a matrix.
  void set(const Rows<float>& from, int rows, const QuantizedMatrix& matrix) {
    const int size = matrix.depth, most = 0x7fffffff / 127 / size;
    const float limit = static_cast<float>(std::min(32767, most));
    numbers.resize(static_cast<size_t>(rows) * matrix.padded);
    scales.resize(rows);
    for (int r = 0; r < rows; ++r) {
      float largest = 0, check = 0;
      for (int i = 0; i < size; ++i) {
        const float magnitude = std::abs(from[r][i]);
        largest = magnitude > largest ? magnitude : largest;
        check += from[r][i] - from[r][i];  // NaN if an entry is infinite or NaN
      }
      const bool usable = check == 0 && largest > 0;
      const float factor = usable ? limit / largest : 0;
      scales[r] = check == 0 ? largest / limit : check;
      int16_t* target = numbers.data() + static_cast<size_t>(r) * matrix.padded;
      for (int i = 0; i < size; ++i) target[i] = usable ? static_cast<int16_t>(std::lrintf(from[r][i] * factor)) : 0;
      std::fill(target + size, target + matrix.padded, int16_t(0));
    }
  }
};

// Sum the products of kLines rows of codes with `Count` rows of whole numbers.
template <int Count>
inline void whole_products(const int8_t* codes, const int16_t* numbers, int padded, int32_t (*sums)[kLines]) {
#if defined(__AVX2__)
  __m256i totals[Count][kLines] = {};
  for (int k = 0; k < padded; k += kCodesTogether, codes += kLines * kCodesTogether) {
    __m256i values[Count];
    RRU_UNROLL
    for (int b = 0; b < Count; ++b)
      values[b] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers + static_cast<size_t>(b) * padded + k));
    RRU_UNROLL
    for (int i = 0; i < kLines; ++i) {
      const __m128i line = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i * kCodesTogether));
      const __m256i wide = _mm256_cvtepi8_epi16(line);
      RRU_UNROLL
      for (int b = 0; b < Count; ++b) totals[b][i] = _mm256_add_epi32(totals[b][i], _mm256_madd_epi16(wide, values[b]));
    }
  }
  RRU_UNROLL
  for (int b = 0; b < Count; ++b) {  // adds up each of the four
    const __m256i first = _mm256_hadd_epi32(totals[b][0], totals[b][1]);
    const __m256i both = _mm256_hadd_epi32(first, _mm256_hadd_epi32(totals[b][2], totals[b][3]));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    std::memcpy(sums[b], &four, sizeof four);
  }
#else
  for (int b = 0; b < Count; ++b) std::fill_n(sums[b], kLines, 0);
  for (int k = 0; k < padded; k += kCodesTogether, codes += kLines * kCodesTogether)
    for (int b = 0; b < Count; ++b) {
      const int16_t* values = numbers + static_cast<size_t>(b) * padded + k;
      for (int i = 0; i < kLines; ++i)
        for (int c = 0; c < kCodesTogether; ++c)
          sums[b][i] += static_cast<int32_t>(static_cast<int16_t>(codes[i * kCodesTogether + c])) * values[c];
    }
#endif
}

template <int Count>
inline void multiply_lines(const QuantizedMatrix& matrix, const WholeRows& from, int line, int row, const Rows<float>& to) {
  int32_t sums[Count][kLines];
  whole_products<Count>(matrix.codes + static_cast<size_t>(line) * matrix.padded,
                        from.numbers.data() + static_cast<size_t>(row) * matrix.padded, matrix.padded, sums);
  const int present = std::min(kLines, matrix.rows - line);
  for (int b = 0; b < Count; ++b)
    for (int i = 0; i < present; ++i)
      to[row + b][line + i] =
          matrix.bias[line + i] + matrix.scales[line + i] * from.scales[row + b] * static_cast<float>(sums[b][i]);
}

// Compute to[r] = bias + matrix * from[r] for r < rows. `whole` is scratch memory.
inline void multiply(const QuantizedMatrix& matrix, const Rows<float>& from, int rows, WholeRows& whole,
                     const Rows<float>& to) {
  whole.set(from, rows, matrix);
  for (int line = 0; line < matrix.rows; line += kLines) {
    int r = 0;
    for (; r + 2 <= rows; r += 2) multiply_lines<2>(matrix, whole, line, r, to);
    if (r < rows) multiply_lines<1>(matrix, whole, line, r, to);
  }
}

// The RRU: Eq. 1-6, as in rru.h.
struct QuantizedRru : RruOptions<float> {
  const float *h0, *reset_h;
  std::vector<QuantizedMatrix> inner;  // Eq. 1 and 2
  const QuantizedMatrix outer;         // Eq. 4 and 6
  float *outputs, *last;

  explicit QuantizedRru(Arguments& in)
      : RruOptions<float>(in, false),
        h0(in.tensor<const float>("h0", {batch, n})),
        reset_h(reset_part<const float>(in, "reset_h")),
        inner(read_inner(in)),
        outer(in, n + p, g) {
    read_residual(in);
    outputs = in.tensor<float>("outputs", {steps, batch, p}), last = in.tensor<float>("last_h", {batch, n});
  }

  struct Scratch {
    Rows<float> xh, wide, other, both;
    WholeRows whole;
    Scratch(const QuantizedRru& cell, int rows)
        : xh(rows, cell.m + cell.n), wide(rows, cell.g), other(rows, cell.g), both(rows, cell.n + cell.p) {}
  };
  void begin(Scratch& scratch, int row, int sequence) const {
    std::copy_n(row_of(h0, sequence, n), n, scratch.xh[row] + m);
  }
  void reset(Scratch& scratch, int row, int sequence) const {
    std::copy_n(row_of(reset_h, sequence, n), n, scratch.xh[row] + m);
  }
  template <typename Token>
  void step(Scratch& scratch, int rows, const Token& token) const {
    for (int r = 0; r < rows; ++r) std::copy_n(row_of(x, token(r), m), m, scratch.xh[r]);
    const Rows<float>*j = &scratch.wide, *next = &scratch.other;
    multiply(inner[0], scratch.xh, rows, scratch.whole, *j);
    for (int r = 0; normalize && r < rows; ++r) {
      const float total = dot((*j)[r], (*j)[r], g), factor = 1 / std::sqrt(total / g + 1e-6f);
      for (int f = 0; f < g; ++f) (*j)[r][f] *= factor;
    }
    relu(*j, rows, g);
    for (size_t k = 1; k < inner.size(); ++k) {
      multiply(inner[k], *j, rows, scratch.whole, *next);
      std::swap(j, next);
      relu(*j, rows, g);
    }
    multiply(outer, *j, rows, scratch.whole, scratch.both);
    if (activate) relu(scratch.both, rows, n + p);
    for (int r = 0; r < rows; ++r) {
      float *c = scratch.both[r], *h = scratch.xh[r] + m;
      for (int f = 0; f < n; ++f) h[f] = kept[f] * h[f] + z[f] * c[f];
      std::copy_n(c + n, p, row_of(outputs, token(r), p));
    }
  }
  void end(Scratch& scratch, int row, int sequence) const {
    std::copy_n(scratch.xh[row] + m, n, row_of(last, sequence, n));
  }

 private:
  std::vector<QuantizedMatrix> read_inner(Arguments& in) const {
    std::vector<QuantizedMatrix> all;
    for (int k = 0; k < relu_layers; ++k) all.emplace_back(in, g, k ? g : m + n);
    return all;
  }
  static void relu(const Rows<float>& rows, int count, int size) {
    for (int r = 0; r < count; ++r)
      for (int f = 0; f < size; ++f) rows[r][f] = rows[r][f] < 0 ? 0 : rows[r][f];
  }
};

// The LSTM, as in lstm.h.
struct QuantizedLstm : Scan<float> {
  const float *h0, *c0, *reset_h, *reset_c;
  const QuantizedMatrix weights;  // [x, h] to the gates' sums
  float *outputs, *last_h, *last_c;

  explicit QuantizedLstm(Arguments& in)
      : Scan<float>(in, false),
        h0(in.tensor<const float>("h0", {batch, n})),
        c0(in.tensor<const float>("c0", {batch, n})),
        reset_h(reset_part<const float>(in, "reset_h")),
        reset_c(reset_part<const float>(in, "reset_c")),
        weights(in, 4 * n, m + n),
        outputs(in.tensor<float>("outputs", {steps, batch, n})),
        last_h(in.tensor<float>("last_h", {batch, n})),
        last_c(in.tensor<float>("last_c", {batch, n})) {}

  struct Scratch {
    Rows<float> xh, gates, c;
    WholeRows whole;
    Scratch(const QuantizedLstm& cell, int rows) : xh(rows, cell.m + cell.n), gates(rows, 4 * cell.n), c(rows, cell.n) {}
  };
  void begin(Scratch& scratch, int row, int sequence) const {
    std::copy_n(row_of(h0, sequence, n), n, scratch.xh[row] + m);
    std::copy_n(row_of(c0, sequence, n), n, scratch.c[row]);
  }
  void reset(Scratch& scratch, int row, int sequence) const {
    std::copy_n(row_of(reset_h, sequence, n), n, scratch.xh[row] + m);
    std::copy_n(row_of(reset_c, sequence, n), n, scratch.c[row]);
  }
  template <typename Token>
  void step(Scratch& scratch, int rows, const Token& token) const {
    for (int r = 0; r < rows; ++r) std::copy_n(row_of(x, token(r), m), m, scratch.xh[r]);
    multiply(weights, scratch.xh, rows, scratch.whole, scratch.gates);
    for (int r = 0; r < rows; ++r) {
      float *i = scratch.gates[r], *f = i + n, *j = f + n, *o = j + n, *c = scratch.c[r], *h = scratch.xh[r] + m;
      for_each<float>(n, [&](auto load, auto store) {
        const Vector<float> after = sigmoid<float>(load(f)) * load(c) + sigmoid<float>(load(i)) * tanh<float>(load(j));
        store(c, after), store(h, tanh<float>(after) * sigmoid<float>(load(o)));
      });
      std::copy_n(h, n, row_of(outputs, token(r), n));
    }
  }
  void end(Scratch& scratch, int row, int sequence) const {
    std::copy_n(scratch.xh[row] + m, n, row_of(last_h, sequence, n));
    std::copy_n(scratch.c[row], n, row_of(last_c, sequence, n));
  }
};

// The GRU, as in gru.h.
struct QuantizedGru : Scan<float> {
  const bool reset_after;
  const float *h0, *reset_h;
  const QuantizedMatrix first, second;
  float *outputs, *last;

  explicit QuantizedGru(Arguments& in)
      : Scan<float>(in, false),
        reset_after(in.flag("reset_after")),
        h0(in.tensor<const float>("h0", {batch, n})),
        reset_h(reset_part<const float>(in, "reset_h")),
        first(in, reset_after ? 3 * n : 2 * n, reset_after ? m : m + n),
        second(in, reset_after ? 3 * n : n, reset_after ? n : m + n),
        outputs(in.tensor<float>("outputs", {steps, batch, n})),
        last(in.tensor<float>("last_h", {batch, n})) {}

  struct Scratch {
    Rows<float> xh, h, gates, sums;  // [x, h], then [x, r h] in place of it; h; the results of the two products
    WholeRows whole;
    Scratch(const QuantizedGru& cell, int rows)
        : xh(rows, cell.m + cell.n), h(rows, cell.n), gates(rows, 3 * cell.n), sums(rows, 3 * cell.n) {}
  };
  void begin(Scratch& scratch, int row, int sequence) const {
    std::copy_n(row_of(h0, sequence, n), n, scratch.h[row]);
  }
  void reset(Scratch& scratch, int row, int sequence) const {
    std::copy_n(row_of(reset_h, sequence, n), n, scratch.h[row]);
  }
  template <typename Token>
  void step(Scratch& scratch, int rows, const Token& token) const {
    for (int r = 0; r < rows; ++r) {
      std::copy_n(row_of(x, token(r), m), m, scratch.xh[r]);
      std::copy_n(scratch.h[r], n, scratch.xh[r] + m);
    }
    multiply(first, scratch.xh, rows, scratch.whole, scratch.gates);
    if (reset_after) multiply(second, scratch.h, rows, scratch.whole, scratch.sums);
    for (int r = 0; r < rows; ++r) reset_row(scratch.gates[r], scratch.sums[r], scratch.xh[r] + m);
    if (!reset_after) multiply(second, scratch.xh, rows, scratch.whole, scratch.sums);
    for (int r = 0; r < rows; ++r) {
      float *u = scratch.gates[r] + n, *j = reset_after ? u + n : scratch.sums[r], *h = scratch.h[r];
      for_each<float>(n, [&](auto load, auto store) {
        const Vector<float> update = load(u);
        store(h, update * load(h) + (1 - update) * tanh<float>(load(j)));
      });
      std::copy_n(h, n, row_of(outputs, token(r), n));
    }
  }
  void end(Scratch& scratch, int row, int sequence) const {
    std::copy_n(scratch.h[row], n, row_of(last, sequence, n));
  }

 private:
  // Compute r and u from their sums, then prepare the candidate's product; `h` is multiplied by r.
  void reset_row(float* r, const float* from_h, float* h) const {
    float* u = r + n;
    for_each<float>(n, [&](auto load, auto store) {
      const Vector<float> reset = sigmoid<float>(reset_after ? load(r) + load(from_h) : load(r));
      store(u, sigmoid<float>(reset_after ? load(u) + load(from_h + n) : load(u)));
      if (reset_after)
        store(r + 2 * n, load(r + 2 * n) + reset * load(from_h + 2 * n));
      else
        store(h, reset * load(h));
    });
  }
};

// Run a quantized cell over time.
template <typename Cell>
void run_quantized(const Cell& cell) {
  if (cell.dropout.active() || cell.save) throw Mismatch("quantized scans have no dropout and no backward pass");
  FlushDenormals flush;
  const Teams all(cell, 1, 0);  // one thread; sequences sorted, longest first
  const std::vector<int>& sequences = all.sequences[0];
  int rows = static_cast<int>(sequences.size());
  typename Cell::Scratch scratch(cell, rows);
  for (int r = 0; r < rows; ++r) cell.begin(scratch, r, sequences[r]);
  for (int s = 0; s < cell.steps; ++s) {
    for (; rows > 0 && cell.length(sequences[rows - 1]) <= s; --rows) cell.end(scratch, rows - 1, sequences[rows - 1]);
    const auto token = [&](int r) {
      const int time = cell.reverse ? cell.length(sequences[r]) - 1 - s : s;
      return static_cast<size_t>(time) * cell.batch + sequences[r];
    };
    for (int r = 0; cell.has_resets && r < rows; ++r)
      if (cell.resets[token(r)]) cell.reset(scratch, r, sequences[r]);
    cell.step(scratch, rows, token);
  }
  for (int r = 0; r < rows; ++r) cell.end(scratch, r, sequences[r]);
}

inline void run(QuantizedRru& cell, int /*threads*/) { run_quantized(cell); }
inline void run(QuantizedLstm& cell, int /*threads*/) { run_quantized(cell); }
inline void run(QuantizedGru& cell, int /*threads*/) { run_quantized(cell); }
}  // namespace rru::RRU_ISA
