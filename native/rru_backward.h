// The gradients of the RRU. They are zero wherever a ReLU or dropout made d zero, so the gradient of d has as many
// zeros as d. With `sparse`, used for wide layers, products and weight gradients skip these zeros.
#pragma once
#include "rru.h"
#include "sparse_gradient.h"

namespace rru::RRU_ISA {

// Eq. 5 and 6, and the arguments, of any backward loop of the RRU.
template <typename T>
struct RruOuterBackward : Rru<T> {
  using Base = Rru<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::p;
  static constexpr bool backward = true;

  const T *grad_outputs, *grad_last;  // (T, B, p), (B, n)
  T *grad_h0, *grad_reset_h;          // (B, n); the latter with has_resets: zero at first
  T* grad_both;                       // (T, B, n + p): gradients of h_t (through c's ReLU, if any) and of o_t
  T* grad_kept;                       // (n,): gradient of sigmoid(10 S)
  T through;                          // factor from d's gradient to that of the last ReLU's input, where d is nonzero
  std::vector<T> kept_parts;          // (threads, n): partial sums of `grad_kept`

  // With `keeps_both` false, `grad_both` is not among the arguments.
  RruOuterBackward(Arguments& in, bool wide, bool keeps_both = true)
      : Rru<T>(in, backward, wide),
        through(this->dropout.active() ? static_cast<T>(1 / (1 - this->dropout.rate)) : T(1)),
        kept_parts(static_cast<size_t>(in.threads) * n) {
    grad_outputs = in.tensor<const T>("grad_outputs", {steps, batch, p});
    grad_last = in.tensor<const T>("grad_last_h", {batch, n});
    grad_h0 = in.tensor<T>("grad_h0", {batch, n}), grad_reset_h = this->template reset_part<T>(in, "grad_reset_h");
    grad_both = keeps_both ? in.tensor<T>("grad_both", {steps, batch, n + p}) : nullptr;
    grad_kept = in.tensor<T>("grad_kept", {n});
  }
  template <typename Scratch>
  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(grad_last, row.sequence, n), n, scratch.grad_h[row.index]);
  }
  template <typename Scratch>
  void reset(Scratch& scratch, const Row& row) const {
    move_row(scratch.grad_h[row.index], row_of(grad_reset_h, row.sequence, n), n);
  }
  template <typename Scratch>
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.grad_h[row.index], n, row_of(grad_h0, row.sequence, n));
  }

 protected:
  // Compute the gradients of c, o and the kept part of h_t-1 from those of h_t and o_t.
  void output_row(const Row& row, const T* dh, T* dc, T* decayed, int thread) {
    const T* h = row_of(this->xh, row.token, m + n) + m;
    T *e = row_of(grad_both, row.token, n + p), *kept_sum = row_of(kept_parts.data(), thread, n);
    std::copy_n(dh, n, e);
    std::copy_n(row_of(grad_outputs, row.token, p), p, e + n);
    if (this->activate) {
      const T* both = row_of(this->activated, row.token, n + p);
      for (int f = 0; f < n + p; ++f) e[f] = both[f] <= 0 ? 0 : e[f];
    }
    const T *kept = this->kept.data(), *z = this->z.data();
    for (int f = 0; f < n; ++f) {
      dc[f] = z[f] * e[f];
      kept_sum[f] += dh[f] * h[f];
      decayed[f] = kept[f] * dh[f];
    }
    std::copy_n(e + n, p, dc + n);
  }
  void sum_kept() const {
    std::fill_n(grad_kept, n, T(0));
    for (size_t i = 0; i < kept_parts.size(); ++i) grad_kept[i % n] += kept_parts[i];
  }
  // Compute the gradients of W^c without Z, (n, g), and W^o, (p, g), from the nonzeros of d, for a share of its features;
  // and `more` gradients from their other values.
  template <typename D, typename... More>
  void outer_gradients(const D& d, Share share, T* grad_c, T* grad_o, const More&... more) const {
    const int g = this->g;
    auto both = [&](int t, int column, int size, T* target) {
      std::copy_n(row_of(grad_both, t, n + p) + column, size, target);
    };
    auto put = [&](int first, int count, int column, int size, const T* sums, int width) {
      for (int j = 0; j < size; ++j) {
        T* row = column + j < n ? row_of(grad_c, column + j, g) : row_of(grad_o, column + j - n, g);
        for (int f = 0; f < count; ++f) row[first + f] = sums[f * width + j];
      }
    };
    const int all = static_cast<int>(this->tokens());
    SparseGradient<T, 1 + sizeof...(More), D>(d, all, g, share).run(GradientOf{both, n + p, put}, more...);
  }
};

template <typename T>
struct RruBackward : RruOuterBackward<T> {
  using Base = RruOuterBackward<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::p, Base::g, Base::tokens, Base::through;
  using Base::grad_both;

  const bool sparse;                       // whether weight gradients around d are computed here, not by the caller
  const bool stores_d;                     // whether d is stored; else, without dropout, it is the ReLU of what is saved
  const bool wants_biases, wants_x;        // whether the gradients of Eq. 1's and 2's biases, and of x, are computed here
  const bool sparse_result, sparse_row;    // whether d has few enough nonzeros for these (see scan/thresholds.py)
  const int layers;                        // how often Eq. 2 applies
  T* grad_pre;                             // (T, B, g): gradient of the sum in Eq. 1
  T* grad_hidden = nullptr;                // (relu_layers - 1, T, B, g): gradients of the sums in Eq. 2, if it applies
  T* features = nullptr;                   // with stores_d: d, (T, B, g)
  T *grad_c = nullptr, *grad_o = nullptr;  // if sparse: gradients of W^c without Z, (n, g), and W^o, (p, g)
  T* grad_middle = nullptr;                // if sparse, with Eq. 2: gradient of the last W^k, (g, g)

  T* grad_biases = nullptr;                // with wants_biases: (relu_layers, g)
  T* grad_x = nullptr;                     // with wants_x: (T, B, m)

  Packed<T> to_h;                 // from the sum in Eq. 1; with wants_x, to x too, in the columns after h
  std::vector<Packed<T>> middle;  // back through Eq. 2
  const Packed<T> to_d;           // from c and o; with sparse_result, the matrix of the forward pass
  SparseRows<T> live;             // if sparse: the nonzeros of d for each token
  Buffer<T> grads;                // if sparse, with Eq. 2: gradients of its last sum where d is nonzero
  std::vector<T> bias_parts;      // (threads, relu_layers, g): partial sums of `grad_biases`

  explicit RruBackward(Arguments& in)
      : Base(in, /*wide=*/false),
        sparse(in.flag("sparse")),
        stores_d(in.between("stores_d", !sparse && this->dropout.active(), !sparse)),
        wants_biases(in.flag("wants_biases")),
        wants_x(in.flag("wants_x")),
        sparse_result(sparse && this->packs() && *this->density < this->max_sparse_result),
        sparse_row(sparse && *this->density < this->max_sparse_row),
        layers(this->middle_layers()),
        to_h(g, wants_x ? n + m : n),
        to_d(pack_to_d()),
        live(sparse ? tokens() : 0, g),
        grads(sparse && layers ? tokens() * g : 0),
        bias_parts(wants_biases ? static_cast<size_t>(in.threads) * this->relu_layers * g : 0) {
    grad_pre = in.tensor<T>("grad_pre", {steps, batch, g});
    if (layers) grad_hidden = in.tensor<T>("grad_hidden", {layers, steps, batch, g});
    if (sparse) {
      grad_c = in.tensor<T>("grad_weight_c", {n, g}), grad_o = in.tensor<T>("grad_weight_o", {p, g});
      if (layers) grad_middle = in.tensor<T>("grad_weight_k", {g, g});
    }
    if (stores_d) features = in.tensor<T>("features", {steps, batch, g});
    if (wants_biases) grad_biases = in.tensor<T>("grad_biases", {this->relu_layers, g});
    if (wants_x) grad_x = in.tensor<T>("grad_x", {steps, batch, m});
    to_h.put(this->weight_h, g, n, 0, 0);
    if (wants_x) to_h.put(this->weight_x, g, m, 0, n);
    this->finish_packing(to_h);
    for (const T* weight : this->weight_k) {
      middle.emplace_back(g, g).put(weight, g, g, 0, 0);
      this->finish_packing_around_d(middle.back());
    }
  }

  struct Scratch {
    Rows<T> grad_h, decayed, both, grad_d, other, found;
    RowsElsewhere<T> from;
    std::vector<SparseRow<T>> at;
    Scratch(const RruBackward& cell, int rows)
        : grad_h(rows, cell.to_h.padded()),
          decayed(rows, cell.to_h.padded()),
          both(rows, round_up(cell.n + cell.p, Packed<T>::width)),
          grad_d(rows, round_up(cell.g, Packed<T>::width)),
          other(rows, round_up(cell.g, Packed<T>::width)),
          found(rows, cell.g),
          from(rows),
          at(rows) {}
  };
  size_t weight_bytes() const { return to_h.bytes() + to_d.bytes(); }
  int rows_together() const { return this->rows_beside(weight_bytes()); }

  void step(Worker<T>& worker, Scratch& scratch) {
    worker.rows([&](const Row& row) {
      const int r = row.index;
      this->output_row(row, scratch.grad_h[r], scratch.both[r], scratch.decayed[r], worker.thread);
      if (sparse || stores_d) feature_row(row, scratch, worker.mask(row));
    });
    if (sparse_result)
      worker.product_at(scratch.both, to_d, scratch.at, scratch.found);
    else
      worker.product(scratch.both, to_d, scratch.grad_d);
    if (sparse && !layers) {
      worker.rows([&](const Row& row) {
        sparse_inner_row(row, scratch);
        add_biases(0, row_of(grad_pre, row.token, g), worker.thread);
      });
    } else {
      worker.rows([&](const Row& row) { last_relu_row(row, scratch); });
      inner_layers(worker, scratch);
    }
    worker.product(scratch.from, to_h, scratch.decayed, scratch.grad_h);
    if (!wants_x) return;
    worker.rows([&](const Row& row) { std::copy_n(scratch.grad_h[row.index] + n, m, row_of(grad_x, row.token, m)); });
  }
  void finish(int threads) const {
    this->sum_kept();
    sum_biases();
    if (sparse) in_parallel(threads, [&](int thread) { weight_gradients({thread, threads}); }, [] {});
  }

 private:
  Packed<T> pack_to_d() const {
    if (sparse_result) return this->pack_outputs();
    Packed<T> packed(n + p, g);
    packed.put(this->weight_c, n, g, 0, 0);
    packed.put(this->weight_o, p, g, n, 0);
    this->finish_packing_around_d(packed);
    return packed;
  }
  // Return the input of the last ReLU, or its output; applying ReLU to either gives the same.
  const T* last_hidden(size_t token) const {
    return layers ? this->hidden_at(layers - 1, token) : row_of(this->pre, token, g);
  }

  // Recompute d (Eq. 3) and store it for the weight gradients. If not sparse, leave the factor of d's gradient in
  // `other`.
  void feature_row(const Row& row, Scratch& scratch, const T* mask) {
    const T* j = last_hidden(row.token);
    T* factor = scratch.other[row.index];
    T* d = sparse ? factor : row_of(features, row.token, g);
    for (int f = 0; f < g; ++f) d[f] = relu(j[f]) * mask[f];
    if (sparse) {
      live.add(row.token, d);
      scratch.at[row.index] = live[row.token];
    } else {
      for (int f = 0; f < g; ++f) factor[f] = d[f] != 0 ? mask[f] : T(0);
    }
  }

  // Eq. 3 and the ReLU before it: computes the gradient of the last ReLU's input from that of d.
  void last_relu_row(const Row& row, Scratch& scratch) const {
    T* dj = scratch.grad_d[row.index];
    if (!sparse && !stores_d) return relu_row(layers, row, dj);
    if (!sparse) {
      const T* factor = scratch.other[row.index];
      for (int f = 0; f < g; ++f) dj[f] *= factor[f];
      return;
    }
    SparseRow<T>& at = scratch.at[row.index];
    T *found = scratch.found[row.index], *target = row_of(grads.get(), row.token, g);
    if (sparse_result)
      for (int k = 0; k < at.count; ++k) target[k] = found[k] * through;
    else
      for (int k = 0; k < at.count; ++k) target[k] = dj[at.index[k]] * through;
    std::fill_n(dj, g, T(0));
    for (int k = 0; k < at.count; ++k) dj[at.index[k]] = target[k];
    at.value = target;
  }

  // Go back through Eq. 2 and 1, from the gradient of the last ReLU's input.
  void inner_layers(Worker<T>& worker, Scratch& scratch) {
    const Rows<T>*grad = &scratch.grad_d, *next = &scratch.other;
    for (int k = layers - 1; k >= 0; --k) {  // Eq. 2; the gradient is already through its ReLU
      worker.rows([&](const Row& row) {
        T* target = row_of(grad_hidden, k * tokens() + row.token, g);
        std::copy_n((*grad)[row.index], g, target);
        scratch.from[row.index] = target;
        add_biases(k + 1, target, worker.thread);
      });
      if (sparse_row && k == layers - 1)
        worker.product(scratch.at, middle[k], *next);
      else
        worker.product(scratch.from, middle[k], *next);
      std::swap(grad, next);
      worker.rows([&](const Row& row) { relu_row(k, row, (*grad)[row.index]); });
    }
    worker.rows([&](const Row& row) {
      normalize_row(row, scratch, (*grad)[row.index]);
      add_biases(0, row_of(grad_pre, row.token, g), worker.thread);
    });
  }

  // Add a row to this thread's gradient of the bias of Eq. 1 (k = 0) or of the k-th Eq. 2.
  void add_biases(int k, const T* grad, int thread) {
    if (!wants_biases) return;
    T* sums = row_of(bias_parts.data(), static_cast<size_t>(thread) * this->relu_layers + k, g);
    for (int f = 0; f < g; ++f) sums[f] += grad[f];
  }
  void sum_biases() const {
    if (!wants_biases) return;
    const size_t size = static_cast<size_t>(this->relu_layers) * g;
    std::fill_n(grad_biases, size, T(0));
    for (size_t i = 0; i < bias_parts.size(); ++i) grad_biases[i % size] += bias_parts[i];
  }

  // The ReLU before the k-th Eq. 2, or the one before d (k = layers).
  void relu_row(int k, const Row& row, T* grad) const {
    const T* j = k == 0 ? row_of(this->pre, row.token, g) : this->hidden_at(k - 1, row.token);
    for (int f = 0; f < g; ++f) grad[f] = j[f] <= 0 ? 0 : grad[f];
  }

  void normalize_row(const Row& row, Scratch& scratch, const T* dj) const {  // Eq. 1
    const T* j = row_of(this->pre, row.token, g);
    T* da = row_of(grad_pre, row.token, g);
    if (this->normalize) {
      const T factor = this->scale[row.token], mean = dot(dj, j, g) / g;
      for (int f = 0; f < g; ++f) da[f] = factor * (dj[f] - j[f] * mean);
    } else {
      std::copy_n(dj, g, da);
    }
    scratch.from[row.index] = da;
  }

  // Eq. 1 and 3 without Eq. 2, if sparse: computes the gradient of the sum in Eq. 1 from that of d. It is nonzero where d
  // is, minus a multiple of Eq. 1's result. There d is j times `through`, so the sum of dj * j is that of found * d.
  void sparse_inner_row(const Row& row, Scratch& scratch) const {
    const SparseRow<T>& at = scratch.at[row.index];
    const T *j = row_of(this->pre, row.token, g), *dense = scratch.grad_d[row.index];
    T *found = scratch.found[row.index], *da = row_of(grad_pre, row.token, g);
    for (int k = 0; !sparse_result && k < at.count; ++k) found[k] = dense[at.index[k]];
    T factor = through;
    if (this->normalize) {
      const T scale = this->scale[row.token], share = scale * dot(found, at.value, at.count) / g;
      for (int f = 0; f < g; ++f) da[f] = -share * j[f];
      factor *= scale;
    } else {
      std::fill_n(da, g, T(0));
    }
    for (int k = 0; k < at.count; ++k) da[at.index[k]] += factor * found[k];
    scratch.from[row.index] = da;
  }

  // Compute the gradients of the weights around d, for a share of its features.
  void weight_gradients(Share share) const {
    const int all = static_cast<int>(tokens());
    auto d = [&](int t) { return SparseToken<T, 1>{live[t].index, {live[t].value}, live[t].count}; };
    this->outer_gradients(d, share, grad_c, grad_o);
    if (!layers) return;
    auto grad = [&](int t) { return SparseToken<T, 1>{live[t].index, {row_of(grads.get(), t, g)}, live[t].count}; };
    auto before = [&](int t, int column, int size, T* target) {
      const T* j = (layers > 1 ? this->hidden_at(layers - 2, t) : row_of(this->pre, t, g)) + column;
      for (int f = 0; f < size; ++f) target[f] = relu(j[f]);
    };
    auto put_middle = [&](int first, int count, int column, int size, const T* sums, int width) {
      for (int f = 0; f < count; ++f) std::copy_n(sums + f * width, size, row_of(grad_middle, first + f, g) + column);
    };
    SparseGradient<T, 1, decltype(grad)>(grad, all, g, share).run(GradientOf{before, g, put_middle});
  }
};
}  // namespace rru::RRU_ISA
