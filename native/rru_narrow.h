// The gradients of a narrow RRU: one ReLU layer, no ReLU of the outputs, and weights that stay in the L2 cache with all
// that a few sequences need. The loop adds up the weight gradients itself, from the rows of its last few steps. So the
// gradients of all steps are never stored, which takes longer than their products: a narrow layer has few operations for
// each byte.
#pragma once
#include "bfloat16_gradients.h"
#include "gradients.h"
#include "rru_backward.h"

namespace rru::RRU_ISA {

// Rows of the last few steps, in the order in which the loop adds them. They are an odd number of cache lines apart:
// otherwise a column of them would not fit the L1 cache, because lines a power of two apart compete for places.
template <typename T>
class RecentRows {
 public:
  RecentRows(int count, int width)
      : stride_((round_up(width, kLine) / kLine | 1) * kLine), data_(static_cast<size_t>(count) * stride_, T(0)) {}
  T* operator[](int row) const { return row_of(data_.get(), row, stride_); }
  int stride() const { return stride_; }

 private:
  static constexpr int kLine = kCacheLine / sizeof(T);
  const int stride_;
  Buffer<T> data_;
};

// The sum over tokens of grads[token][r] * values[token][c], of which each call of `add` adds some; with `dots`, in bfloat16
// by AVX512_BF16.
template <typename T>
class GradientSum {
 public:
  static constexpr int group = 6;

  GradientSum(int rows, int columns, bool dots)
      : rows_(rows),
        columns_(columns),
        dots_(dots),
        padded_(round_up(columns, Simd<T>::lanes)),
        sums_(static_cast<size_t>(round_up(rows, group)) * padded_, T(0)) {}

  // Rows of `grads` must be a multiple of `group` wide, those of `values` whole registers.
  void add(const RecentRows<T>& grads, const RecentRows<T>& values, int tokens) {
#if defined(RRU_DOTS)
    if constexpr (std::is_same_v<T, float>)
      if (dots_) return add_rounded(grads, values, tokens);
#endif
    constexpr int lanes = Simd<T>::lanes;
    int c = 0;
    auto add_columns = [&](auto vectors) {
      for (; c + vectors() * lanes <= padded_; c += vectors() * lanes)
        for (int r = 0; r < rows_; r += group)
          add_tile<T, group, vectors()>({grads[0] + r, 1, static_cast<size_t>(grads.stride())}, values[0] + c,
                                        values.stride(), tokens, row_of(sums_.get(), r, padded_) + c, padded_);
    };
    add_columns(std::integral_constant<int, 2>()), add_columns(std::integral_constant<int, 1>());
  }
  // Add the sums to rows first .. first + rows of this sum, and columns column .. column + columns, of a matrix.
  void add_to(T* target, int first, int rows, int column, int columns) const {
    for (int r = 0; r < rows; ++r) {
      const T* from = row_of(sums_.get(), first + r, padded_) + column;
      for (int c = 0; c < columns; ++c) target[static_cast<size_t>(r) * columns + c] += from[c];
    }
  }

 private:
#if defined(RRU_DOTS)
  void add_rounded(const RecentRows<float>& grads, const RecentRows<float>& values, int tokens) {
    constexpr int height = GradientDots::height, width = GradientDots::width;
    const int lines = GradientDots::lines(tokens);
    auto in_strips = [&](auto strip, const RecentRows<float>& rows, int size, GrowingBuffer<uint32_t>& buffer) {
      uint32_t* pairs = buffer.at_least(static_cast<size_t>(round_up(size, strip())) * lines);
      pair_rows<strip()>([&](int token) { return token < tokens ? rows[token] : nullptr; }, size, false, lines, {0, 1}, pairs);
      return pairs;
    };
    const uint32_t* left = in_strips(std::integral_constant<int, height>(), grads, rows_, grad_pairs_);
    const uint32_t* right = in_strips(std::integral_constant<int, width>(), values, columns_, value_pairs_);
    alignas(kCacheLine) float sums[height * width];
    for (int c = 0; c < columns_; c += width)
      for (int r = 0; r < rows_; r += height) {
        gradient_tile<height, width>(left + static_cast<size_t>(r) * lines, right + static_cast<size_t>(c) * lines, lines, sums);
        for (int i = 0; i < std::min(height, rows_ - r); ++i)
          put_sums(sums + i * width, std::min(width, columns_ - c), false, row_of(sums_.get(), r + i, padded_) + c);
      }
  }
#endif

  const int rows_, columns_;
  const bool dots_;
  const int padded_;
  Buffer<T> sums_;
  GrowingBuffer<uint32_t> grad_pairs_, value_pairs_;  // with `dots`: the rows of a call, in pairs of tokens
};

template <typename T>
struct RruNarrowBackward : RruOuterBackward<T> {
  using Base = RruOuterBackward<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::p, Base::g, Base::tokens, Base::through;

  // What one thread adds up.
  struct Sums {
    GradientSum<T> outer, inner;        // (n + p, g): of W^c without Z, and W^o; (g, m + n): of W^x and W^h
    std::vector<T> outer_bias, inner_bias;  // (n + p,), (g,)
    explicit Sums(const RruNarrowBackward& cell)
        : outer(cell.n + cell.p, cell.g, cell.dots),
          inner(cell.g, cell.m + cell.n, cell.dots),
          outer_bias(cell.n + cell.p),
          inner_bias(cell.g) {}
  };

  const bool wants_x;
  T *grad_c, *grad_o, *grad_bias_co;  // (n, g), (p, g), (n + p,): without Z
  T *grad_wx, *grad_wh, *grad_b;      // (g, m), (g, n), (g,)
  T* grad_x = nullptr;                // (T, B, m)
  Packed<T> to_d;                     // from h_t and o_t, through Z
  Packed<T> to_hx;                    // from the sum in Eq. 1 to the state and, with wants_x, the input
  std::deque<Sums> sums;              // of each thread

  explicit RruNarrowBackward(Arguments& in)
      : Base(in, /*wide=*/false, /*keeps_both=*/false),
        wants_x(in.flag("wants_x")),
        grad_c(in.tensor<T>("grad_weight_c", {n, g})),
        grad_o(in.tensor<T>("grad_weight_o", {p, g})),
        grad_bias_co(in.tensor<T>("grad_bias_co", {n + p})),
        grad_wx(in.tensor<T>("grad_weight_x", {g, m})),
        grad_wh(in.tensor<T>("grad_weight_h", {g, n})),
        grad_b(in.tensor<T>("grad_bias_j", {g})),
        to_d(n + p, g),
        to_hx(g, wants_x ? n + m : n) {
    if (wants_x) grad_x = in.tensor<T>("grad_x", {steps, batch, m});
    if (this->relu_layers > 1 || this->activate || this->bfloat16 != this->dots)
      throw Mismatch("the narrow form needs one ReLU layer, no ReLU of the outputs, and for bfloat16 AVX512_BF16");
    if (weight_bytes() > static_cast<size_t>(this->max_cached_weights))  // else threads would share sequences
      throw Mismatch("the narrow form needs weights that stay in the cache");
    std::vector<T> through_z(this->weight_c, this->weight_c + static_cast<size_t>(n) * g);
    for (size_t i = 0; i < through_z.size(); ++i) through_z[i] *= this->z[i / g];
    to_d.put(through_z.data(), n, g, 0, 0);
    to_d.put(this->weight_o, p, g, n, 0);
    to_hx.put(this->weight_h, g, n, 0, 0);
    if (wants_x) to_hx.put(this->weight_x, g, m, 0, n);
    this->finish_packing(to_d), this->finish_packing(to_hx);
    for (int thread = 0; thread < in.threads; ++thread) sums.emplace_back(*this);
  }

  struct Scratch {
    Rows<T> grad_h, decayed, grad_d;           // `grad_h`: of the state, then of the input; `decayed`: zero for the latter
    RecentRows<T> both, features, inner, xh;   // gradients of h_t and o_t, d, gradients of the sum in Eq. 1, its inputs
    RowsElsewhere<T> from;
    int recent = 0;                            // how many rows of these are in use
    Scratch(const RruNarrowBackward& cell, int rows)
        : grad_h(rows, cell.to_hx.padded()),
          decayed(rows, cell.to_hx.padded()),
          grad_d(rows, cell.to_d.padded()),
          both(capacity(rows), cell.n + cell.p + GradientSum<T>::group),
          features(capacity(rows), round_up(cell.g, Simd<T>::lanes)),
          inner(capacity(rows), cell.g + GradientSum<T>::group),
          xh(capacity(rows), round_up(cell.m + cell.n, Simd<T>::lanes)),
          from(rows) {}
    // Enough rows for products that seldom load and store their sums, few enough for the L2 cache.
    static int capacity(int rows) { return std::max(rows, 128); }
  };
  size_t weight_bytes() const { return to_hx.bytes() + to_d.bytes(); }
  int rows_together() const { return this->rows_beside(weight_bytes()); }

  void step(Worker<T>& worker, Scratch& scratch) {
    Sums& own = sums[worker.thread];
    if (scratch.recent + worker.count() > Scratch::capacity(worker.rows_in_all())) add_recent(own, scratch);
    worker.rows([&](const Row& row) {
      output_row(row, scratch, own, worker.thread);
      feature_row(row, scratch, worker);
    });
    worker.product(scratch.from, to_d, scratch.grad_d);
    worker.rows([&](const Row& row) { inner_row(row, scratch, own); });
    worker.product(scratch.from, to_hx, scratch.decayed, scratch.grad_h);
    if (wants_x)
      worker.rows([&](const Row& row) {
        std::copy_n(scratch.grad_h[row.index] + n, m, row_of(grad_x, row.token, m));
      });
    scratch.recent += worker.count();
    if (worker.at_first_step()) add_recent(own, scratch);
  }
  void finish(int /*threads*/) const {
    this->sum_kept();
    std::fill_n(grad_c, static_cast<size_t>(n) * g, T(0)), std::fill_n(grad_o, static_cast<size_t>(p) * g, T(0));
    std::fill_n(grad_wx, static_cast<size_t>(g) * m, T(0)), std::fill_n(grad_wh, static_cast<size_t>(g) * n, T(0));
    std::fill_n(grad_bias_co, n + p, T(0)), std::fill_n(grad_b, g, T(0));
    for (const Sums& part : sums) {
      part.outer.add_to(grad_c, 0, n, 0, g), part.outer.add_to(grad_o, n, p, 0, g);
      part.inner.add_to(grad_wx, 0, g, 0, m), part.inner.add_to(grad_wh, 0, g, m, n);
      for (int f = 0; f < n + p; ++f) grad_bias_co[f] += part.outer_bias[f];
      for (int f = 0; f < g; ++f) grad_b[f] += part.inner_bias[f];
    }
  }

 private:
  // Eq. 5 and 6: collects the gradients of h_t and o_t, and computes that of the kept part of h_t-1.
  void output_row(const Row& row, Scratch& scratch, Sums& own, int thread) {
    const T *dh = scratch.grad_h[row.index], *xh = row_of(this->xh, row.token, m + n), *h = xh + m;
    T *e = scratch.both[scratch.recent + row.index], *decayed = scratch.decayed[row.index];
    T *kept_sum = row_of(this->kept_parts.data(), thread, n), *bias = own.outer_bias.data();
    const T* kept = this->kept.data();
    for (int f = 0; f < n; ++f) {
      e[f] = dh[f];
      kept_sum[f] += dh[f] * h[f];
      decayed[f] = kept[f] * dh[f];
    }
    std::copy_n(row_of(this->grad_outputs, row.token, p), p, e + n);
    for (int f = 0; f < n + p; ++f) bias[f] += e[f];
    std::copy_n(xh, m + n, scratch.xh[scratch.recent + row.index]);
    scratch.from[row.index] = e;
  }

  void feature_row(const Row& row, Scratch& scratch, Worker<T>& worker) const {  // recomputes d, Eq. 3
    const T* j = row_of(this->pre, row.token, g);
    T* d = scratch.features[scratch.recent + row.index];
    if (!this->dropout.active()) {
      for (int f = 0; f < g; ++f) d[f] = relu(j[f]);
      return;
    }
    const T* mask = worker.mask(row);
    for (int f = 0; f < g; ++f) d[f] = relu(j[f]) * mask[f];
  }

  // Eq. 1 and 3: computes the gradient of the sum in Eq. 1 from that of d. Where d is nonzero it is j times `through`, so
  // the sum of dj * j is that of grad * d.
  void inner_row(const Row& row, Scratch& scratch, Sums& own) const {
    const T *j = row_of(this->pre, row.token, g), *d = scratch.features[scratch.recent + row.index];
    const T* grad = scratch.grad_d[row.index];
    T *da = scratch.inner[scratch.recent + row.index], *bias = own.inner_bias.data();
    const T scale = this->normalize ? this->scale[row.token] : T(1), factor = scale * through;
    const T share = this->normalize ? scale * dot(grad, d, g) / g : T(0);
    for (int f = 0; f < g; ++f) {
      da[f] = (d[f] != 0 ? factor * grad[f] : T(0)) - share * j[f];
      bias[f] += da[f];
    }
    scratch.from[row.index] = da;
  }

  void add_recent(Sums& own, Scratch& scratch) const {
    own.outer.add(scratch.both, scratch.features, scratch.recent);
    own.inner.add(scratch.inner, scratch.xh, scratch.recent);
    scratch.recent = 0;
  }
};
}  // namespace rru::RRU_ISA
