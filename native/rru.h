// The RRU over time: Eq. 1-6. The gradients are in rru_backward.h, the form for wide layers in rru_wide.h.
#pragma once
#include "live.h"
#include "pointwise.h"
#include "scan.h"

namespace rru::RRU_ISA {

template <typename T>
inline T dot(const T* one, const T* two, int size) {
  T total = 0;
  inner_products<T, 1>(one, two, size, &total);
  return total;
}

template <typename T>
inline T relu(T x) {
  return x < 0 ? 0 : x;  // NaN stays NaN
}

// The options of every scan of the RRU, quantized or not, and its residual.
template <typename T>
struct RruOptions : Scan<T> {
  using Scan<T>::n;

  const int g, relu_layers;
  const bool normalize, activate, scaled, vector_z;
  std::vector<T> kept, z;  // sigmoid(10 S) and Z, (n,) each

  RruOptions(Arguments& in, bool backward)
      : Scan<T>(in, backward),
        g(in.size("expanded_size")),
        relu_layers(in.size("relu_layers")),
        normalize(in.flag("normalize")),
        activate(in.flag("activate_outputs")),
        scaled(in.flag("scaled_residual")),
        vector_z(in.flag("vector_rezero")) {}

 protected:
  // To be called after a tensor's size has confirmed n, for which this allocates memory.
  void read_residual(Arguments& in) {
    kept.assign(n, T(1)), z.resize(n);
    if (scaled) {
      const T* s = in.tensor<const T>("S", {n});
      for_each<T>(n, [&](auto load, auto store) { store(kept.data(), sigmoid<T>(10 * load(s))); });
    }
    const T* given = in.tensor<const T>("Z", {vector_z ? n : 1});
    for (int f = 0; f < n; ++f) z[f] = given[vector_z ? f : 0];
  }
};

template <typename T>
struct Rru : RruOptions<T> {
  using Base = RruOptions<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::p, Base::save;
  using Base::g, Base::relu_layers, Base::normalize, Base::activate, Base::kept, Base::z;

  const bool wide;  // whether this is rru_wide.h's form
  const double max_sparse_row, max_sparse_result, select_above;  // see scan/thresholds.py
  const T *h0, *reset_h;                           // (B, n); the latter with has_resets
  const T *weight_x, *weight_h, *bias_j;           // (g, m), (g, n), (g,)
  std::vector<const T*> weight_k, bias_k;          // (g, g), (g,)
  const T *weight_c, *bias_c, *weight_o, *bias_o;  // (n, g), (n,), (p, g), (p,)
  T* outputs = nullptr;                            // (T, B, p), in the forward pass
  // With `save`, for the backward pass:
  T* xh = nullptr;         // (T, B, m + n): input and previous state of each step
  T* scale = nullptr;      // (T, B): the factor of Normalize
  T* pre = nullptr;        // unless wide: (T, B, g), Eq. 1 before ReLU
  T* density = nullptr;    // unless wide: (1,), the share of nonzeros in d; 1 if zeros must not be skipped
  T* y = nullptr;          // if wide: (T, B, m + n), see rru_wide.h
  LiveRows<T> live_rows;   // if wide: the live entries of d
  T* hidden = nullptr;     // (relu_layers - 1, T, B, g): the results of Eq. 2, if it applies
  T* activated = nullptr;  // (T, B, n + p): c and o after ReLU, with `activate`

  Rru(Arguments& in, bool backward, bool wide = false)
      : RruOptions<T>(in, backward),
        wide(wide),
        max_sparse_row(in.real("max_sparse_row")),
        max_sparse_result(in.real("max_sparse_result")),
        select_above(in.real("select_above")) {
    h0 = in.tensor<const T>("h0", {batch, n}), reset_h = this->template reset_part<const T>(in, "reset_h");
    weight_x = in.tensor<const T>("weight_x", {g, m}), weight_h = in.tensor<const T>("weight_h", {g, n});
    bias_j = in.tensor<const T>("bias_j", {g});
    for (int k = 1; k < relu_layers; ++k) {
      weight_k.push_back(in.tensor<const T>("weight_k", {g, g}));
      bias_k.push_back(in.tensor<const T>("bias_k", {g}));
    }
    weight_c = in.tensor<const T>("weight_c", {n, g}), bias_c = in.tensor<const T>("bias_c", {n});
    weight_o = in.tensor<const T>("weight_o", {p, g}), bias_o = in.tensor<const T>("bias_o", {p});
    this->read_residual(in);
    if (wide && !(this->packs() && relu_layers == 1 && normalize && !this->bfloat16))
      throw Mismatch("the wide form needs enough tokens to pack weights, one ReLU layer, Normalize, and no bfloat16");
    if (!backward) outputs = in.tensor<T>("outputs", {steps, batch, p});
    if (save) read_saved(in);
  }
  // Of a forward loop; backward ones have their own.
  template <typename Scratch>
  void reset(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(reset_h, row.sequence, n), n, scratch.xh[row.index] + m);
  }
  int mask_size() const { return g; }
  int middle_layers() const { return relu_layers - 1; }
  T* hidden_at(int k, size_t token) const { return row_of(hidden, k * this->tokens() + token, g); }

  // Like `finish_packing`, for the matrices before and after d. Skipping the zeros of dropout in float32 is faster than
  // bfloat16 without dot products.
  void finish_packing_around_d(Packed<T>& matrix) const {
    if (this->dots || !this->dropout.active()) this->finish_packing(matrix);
  }

  // The weights of Eq. 4 and 6 side by side, g x (n + p).
  Packed<T> pack_outputs() const {
    Packed<T> packed(g, n + p, this->packs());
    packed.put_transposed(weight_c, n, g, 0, 0);
    packed.put_transposed(weight_o, p, g, 0, n);
    packed.put_bias(bias_c, n, 0);
    packed.put_bias(bias_o, p, n);
    finish_packing_around_d(packed);
    return packed;
  }

 protected:
  // Eq. 5 and 6, from c and o side by side.
  void state_row(const Row& row, T* c, T* h) const {
    const T* o = c + n;
    if (activate) {
      for (int f = 0; f < n + p; ++f) c[f] = relu(c[f]);
      if (save) std::copy_n(c, n + p, row_of(activated, row.token, n + p));
    }
    const T *keep = kept.data(), *rezero = z.data();
    for (int f = 0; f < n; ++f) h[f] = keep[f] * h[f] + rezero[f] * c[f];  // Eq. 5
    std::copy_n(o, p, row_of(outputs, row.token, p));
  }

 private:
  void read_saved(Arguments& in) {
    xh = in.tensor<T>("xh", {steps, batch, m + n});
    scale = in.tensor<T>("scale", {steps, batch});
    if (wide) {
      y = in.tensor<T>("y", {steps, batch, m + n});
      live_rows.read(in, steps, batch, g);
    } else {
      pre = in.tensor<T>("pre", {steps, batch, g});
      density = in.tensor<T>("density", {1});
    }
    if (middle_layers()) hidden = in.tensor<T>("hidden", {middle_layers(), steps, batch, g});
    if (activate) activated = in.tensor<T>("activated", {steps, batch, n + p});
  }
};

// Return whether products with a matrix may skip zeros. Not if it has infinities or NaN: zero times infinity is NaN.
template <typename T>
bool is_finite(const Packed<T>& matrix) {
  bool all = true;
  const T* values = matrix.data.get();
  for (size_t i = 0; i < matrix.size(); ++i) all &= values[i] - values[i] == 0;
  return all;
}

template <typename T>
struct RruForward : Rru<T> {
  using Base = Rru<T>;
  using Base::m, Base::n, Base::p, Base::g, Base::save;
  static constexpr bool backward = false;

  T* last;                                  // (B, n)
  Packed<T> inner;                          // Eq. 1
  std::vector<Packed<T>> middle;            // Eq. 2
  const Packed<T> outer;                    // Eq. 4 and 6
  bool skips;                               // whether products may skip the zeros of d
  mutable std::atomic<int64_t> nonzero{0};  // nonzeros of d, over all steps

  explicit RruForward(Arguments& in)
      : Rru<T>(in, backward),
        last(in.tensor<T>("last_h", {this->batch, n})),
        inner(m + n, g, this->packs()),
        outer(this->pack_outputs()) {
    inner.put_transposed(this->weight_x, g, m, 0, 0);
    inner.put_transposed(this->weight_h, g, n, m, 0);
    inner.put_bias(this->bias_j, g, 0);
    this->finish_packing(inner);
    for (int k = 0; k < this->middle_layers(); ++k) {
      middle.emplace_back(g, g, this->packs()).put_transposed(this->weight_k[k], g, g, 0, 0);
      middle.back().put_bias(this->bias_k[k], g, 0);
      this->finish_packing_around_d(middle.back());
    }
    skips = outer.packed && !outer.halves && is_finite(outer) && (middle.empty() || is_finite(middle.back()));
  }

  struct Scratch {
    Rows<T> xh, wide, other, both;     // `both`: c and o side by side
    SparseRows<T> sparse;              // the nonzeros of d
    std::vector<SparseRow<T>> live;    // the rows of `sparse`, as a product takes them
    std::vector<int> nonzero;          // nonzeros in each row of d at this step
    std::vector<int64_t> all_nonzero;  // nonzeros in each row of d at all steps so far
    Scratch(const RruForward& cell, int rows)
        : xh(rows, cell.m + cell.n),
          wide(rows, cell.inner.padded()),
          other(rows, cell.middle.empty() ? 0 : cell.inner.padded()),
          both(rows, cell.outer.padded()),
          sparse(rows, cell.g),
          live(rows),
          nonzero(rows),
          all_nonzero(rows) {}
  };
  size_t weight_bytes() const { return inner.bytes() + outer.bytes(); }
  int rows_together() const { return this->rows_beside(weight_bytes()); }

  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->h0, row.sequence, n), n, scratch.xh[row.index] + m);
    scratch.all_nonzero[row.index] = 0;
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) { this->read_input(row, scratch.xh[row.index], this->xh); });
    const Rows<T>*j = &scratch.wide, *next = &scratch.other;
    worker.product(scratch.xh, inner, *j);  // the sum in Eq. 1
    auto dropout = [&](const Row& row) { dropout_row(row, worker, scratch, (*j)[row.index]); };  // Eq. 3
    worker.rows([&](const Row& row) {
      normalize_row(row, (*j)[row.index]);
      if (middle.empty()) dropout(row);
    });
    for (size_t k = 0; k < middle.size(); ++k) {  // Eq. 2
      worker.product(*j, middle[k], *next);
      std::swap(j, next);
      worker.rows([&](const Row& row) {
        middle_row(row, static_cast<int>(k), (*j)[row.index]);
        if (k + 1 == middle.size()) dropout(row);
      });
    }
    if (few_nonzero(worker, scratch))  // Eq. 4 and 6
      worker.product(scratch.live, outer, scratch.both);
    else
      worker.product(*j, outer, scratch.both);
    worker.rows([&](const Row& row) { this->state_row(row, scratch.both[row.index], scratch.xh[row.index] + m); });
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.xh[row.index] + m, n, row_of(last, row.sequence, n));
    nonzero.fetch_add(scratch.all_nonzero[row.index], std::memory_order_relaxed);
  }
  void finish(int /*threads*/) const {
    if (!save) return;
    double entries = 0;
    for (int b = 0; b < this->batch; ++b) entries += static_cast<double>(g) * this->length(b);
    *this->density = skips ? static_cast<T>(static_cast<double>(nonzero) / std::max(1.0, entries)) : T(1);
  }

 private:
  void normalize_row(const Row& row, T* j) const {  // Eq. 1
    if (this->normalize) {
      const T factor = 1 / std::sqrt(dot(j, j, g) / g + T(1e-6));
      for (int f = 0; f < g; ++f) j[f] *= factor;
      if (save) this->scale[row.token] = factor;
    }
    if (save) std::copy_n(j, g, row_of(this->pre, row.token, g));
    for (int f = 0; f < g; ++f) j[f] = relu(j[f]);
  }

  void middle_row(const Row& row, int k, T* j) const {  // Eq. 2
    for (int f = 0; f < g; ++f) j[f] = relu(j[f]);
    if (save) std::copy_n(j, g, this->hidden_at(k, row.token));
  }

  void dropout_row(const Row& row, Worker<T>& worker, Scratch& scratch, T* d) const {
    if (this->dropout.active()) {
      const T* mask = worker.mask(row);
      for (int f = 0; f < g; ++f) d[f] *= mask[f];
    }
    int count = 0;
    for (int f = 0; f < g; ++f) count += d[f] != 0;
    scratch.nonzero[row.index] = count;
    scratch.all_nonzero[row.index] += count;
    if (!skips || count >= this->max_sparse_row * g) return;
    scratch.sparse.collect(row.index, d);
    scratch.live[row.index] = scratch.sparse[row.index];
  }

  // Return whether every row of d has few enough nonzeros for the product to skip zeros.
  bool few_nonzero(const Worker<T>& worker, const Scratch& scratch) const {
    const auto begin = scratch.nonzero.begin();
    return skips && *std::max_element(begin, begin + worker.count()) < this->max_sparse_row * g;
  }
};
}  // namespace rru::RRU_ISA
