// The RRU with many more features in d than in [x, h], one ReLU layer, Normalize and dropout. It computes what rru.h and
// rru_backward.h do, but touches only the live entries of d (live.h).
//
// Let u = [x, h] of a token, a = W u + b the sum in Eq. 1, with W = [W^x W^h], and s = (mean(a^2) + 1e-6)^-1/2 the factor
// of Normalize. With M = W'W, made once per call, y = M u + W'b is much cheaper than a, and
//
//   sum(a^2) = u'y + b'(W u + b)         so a is needed only where dropout keeps it, and
//   da = s dj - k a                      the gradient of a, with k = s^2 mean(dj j), is sparse but for a multiple of a:
//   du = W' da = W' (s dj) - k y         a sparse product and a row that is known,
//   dW = sum da u' = sum s dj u' - W G   a sparse gradient and a small product, G = sum k u u', over all tokens.
//
// So neither a nor da is ever stored. The caller makes M and subtracts W G (scan/native/rru_wide.py).
#pragma once
#include "gradients.h"
#include "rru_backward.h"

namespace rru::RRU_ISA {

template <typename T>
struct RruWideForward : Rru<T> {
  using Base = Rru<T>;
  using Base::m, Base::n, Base::p, Base::g, Base::save, Base::batch;
  static constexpr bool backward = false;

  T* last;                  // (B, n)
  const bool selected;      // whether Eq. 1 is computed only where dropout keeps it
  Packed<T> inner;          // Eq. 1; if selected, W as it is: an inner product for each entry
  Packed<T> gram;           // M, with the bias W'b
  const Packed<T> outer;    // Eq. 4 and 6
  std::vector<T> diagonal;  // of M
  T bias_square = 0;        // b'b
  T through;                // what dropout multiplies with
  bool skips;               // whether products may skip zeros

  explicit RruWideForward(Arguments& in)
      : Rru<T>(in, backward, /*wide=*/true),
        last(in.tensor<T>("last_h", {batch, n})),
        selected(this->dropout.rate > this->select_above),
        inner(selected ? g : m + n, selected ? m + n : g),
        gram(m + n, m + n),
        outer(this->pack_outputs()),
        diagonal(m + n),
        through(static_cast<T>(1 / (1 - this->dropout.rate))) {
    pack_inner();
    pack_gram(in.tensor<const T>("gram", {m + n, m + n}));
    skips = is_finite(outer);
  }

  struct Scratch {
    Rows<T> xh, y, wide, both;
    Buffer<int> index;
    Buffer<T> value;
    std::vector<LiveList<T>> lists;                   // of each row: live entries
    std::vector<SparseRow<T>> kept, live;             // of each row: what dropout keeps, and the live entries
    std::vector<std::vector<int>> bounds, all;        // of `live` and `kept`; the features that dropout keeps
    Scratch(const RruWideForward& cell, int rows)
        : xh(rows, round_up(cell.m + cell.n, Packed<T>::width)),
          y(rows, cell.gram.padded()),
          wide(rows, round_up(cell.g, Packed<T>::width)),
          both(rows, cell.outer.padded()),
          index(rows * room(cell)),
          value(rows * room(cell)),
          kept(rows),
          live(rows),
          bounds(rows, std::vector<int>(sparse_blocks(cell.g) + 1)),
          all(rows, std::vector<int>(cell.selected ? room(cell) : 0)) {
      for (int r = 0; r < rows; ++r) lists.push_back({index.get() + r * room(cell), value.get() + r * room(cell)});
    }
    static size_t room(const RruWideForward& cell) { return round_up(cell.g, LiveList<T>::room) + LiveList<T>::room; }
  };
  size_t weight_bytes() const { return inner.bytes() + outer.bytes(); }

  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->h0, row.sequence, n), n, scratch.xh[row.index] + m);
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) {
      this->read_input(row, scratch.xh[row.index], this->xh);
      if (selected) keep_row(row, scratch);
    });
    if (selected)
      worker.product_at(scratch.xh, inner, scratch.kept, scratch.wide);  // the sum in Eq. 1, without the bias
    else
      worker.product(scratch.xh, inner, scratch.wide);  // the sum in Eq. 1
    if (save || selected) worker.product(scratch.xh, gram, scratch.y);
    worker.rows([&](const Row& row) { live_row(row, scratch); });
    worker.product(scratch.live, outer, scratch.both);  // Eq. 4 and 6
    worker.rows([&](const Row& row) { this->state_row(row, scratch.both[row.index], scratch.xh[row.index] + m); });
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.xh[row.index] + m, n, row_of(last, row.sequence, n));
  }

 private:
  void pack_inner() {
    if (selected) {
      inner.put(this->weight_x, g, m, 0, 0);
      inner.put(this->weight_h, g, n, 0, m);
    } else {
      inner.put_transposed(this->weight_x, g, m, 0, 0);
      inner.put_transposed(this->weight_h, g, n, m, 0);
      inner.put_bias(this->bias_j, g, 0);
    }
  }
  void pack_gram(const T* matrix) {
    gram.put(matrix, m + n, m + n, 0, 0);
    multiply_strided<T>({this->bias_j, 1, 1}, 1, this->weight_x, m, m, g, gram.bias.get());
    multiply_strided<T>({this->bias_j, 1, 1}, 1, this->weight_h, n, n, g, gram.bias.get() + m);
    for (int i = 0; i < m + n; ++i) diagonal[i] = row_of(matrix, i, m + n)[i];
    bias_square = dot(this->bias_j, this->bias_j, g);
  }

  // List what dropout keeps, for the product that computes only these.
  void keep_row(const Row& row, Scratch& scratch) const {
    LiveList<T>& list = scratch.lists[row.index];
    LiveList<T> kept{scratch.all[row.index].data(), list.value};
    if (skips)
      list_kept<false>(this->dropout, row.time, row.sequence, g, static_cast<const T*>(nullptr), T(0), kept);
    else
      for (int f = 0; f < g; ++f) kept.add(f, T(0));
    find_bounds(kept.index, kept.count, sparse_blocks(g), scratch.bounds[row.index].data());
    scratch.kept[row.index] = {kept.index, kept.value, kept.count, scratch.bounds[row.index].data()};
  }

  // Eq. 1 and 3: the factor of Normalize, and the entries that ReLU and dropout keep.
  void live_row(const Row& row, Scratch& scratch) const {
    T *a = scratch.wide[row.index], *xh = scratch.xh[row.index], *y = scratch.y[row.index];
    const SparseRow<T>& kept = scratch.kept[row.index];
    for (int i = 0; selected && i < kept.count; ++i) a[i] += this->bias_j[kept.index[i]];
    T square = selected ? dot(xh, y, m + n) + dot(xh, gram.bias.get(), m + n) + bias_square : dot(a, a, g);
    if ((save || selected) && cancels(xh, square)) square = exact_row(xh, selected ? nullptr : a, y);
    const T factor = 1 / std::sqrt(square / g + T(1e-6));
    LiveList<T>& list = scratch.lists[row.index];
    list.count = 0;
    if (!skips || !(square - square == 0))
      all_row(row, a, factor, list);
    else if (selected)
      list_positive(kept.index, a, kept.count, factor * through, list);
    else
      list_kept<true>(this->dropout, row.time, row.sequence, g, a, factor * through, list);
    int* bounds = scratch.bounds[row.index].data();
    find_bounds(list.index, list.count, sparse_blocks(g), bounds);
    scratch.live[row.index] = {list.index, list.value, list.count, bounds};
    if (!save) return;
    this->scale[row.token] = factor;
    std::copy_n(y, m + n, row_of(this->y, row.token, m + n));
    this->live_rows.add(row.token, list);
  }
  // Return whether sum(a^2) is small relative to its terms, so that rounding errors in M are not.
  bool cancels(const T* xh, T square) const {
    T terms = bias_square;
    for (int i = 0; i < m + n; ++i) terms += xh[i] * xh[i] * diagonal[i];
    return square < T(0.1) * terms;
  }
  // Compute sum(a^2) and y = W'a without M, from all of a, if it is given.
  T exact_row(const T* xh, const T* a, T* y) const {
    std::fill_n(y, m + n, T(0));
    T square = 0;
    for (int f = 0; f < g; ++f) {
      const T *wx = row_of(this->weight_x, f, m), *wh = row_of(this->weight_h, f, n);
      T sum = a ? a[f] : this->bias_j[f];
      if (!a) inner_products<T, 1>(xh, wx, m, &sum), inner_products<T, 1>(xh + m, wh, n, &sum);
      for (int i = 0; i < m; ++i) y[i] += sum * wx[i];
      for (int i = 0; i < n; ++i) y[m + i] += sum * wh[i];
      square += sum * sum;
    }
    return square;
  }
  // Infinity or NaN in the weights or in this row: takes all entries as live, because zero times infinity is NaN.
  void all_row(const Row& row, const T* a, T factor, LiveList<T>& list) const {
    std::vector<T> mask(g);
    this->dropout.mask(row.time, row.sequence, g, mask.data());
    const bool all = !selected || !skips;  // else only what dropout keeps is in a, and it is infinite or NaN
    for (int f = 0; f < g; ++f) list.add(f, all ? relu(a[f] * factor) * mask[f] : std::numeric_limits<T>::quiet_NaN());
  }
};

template <typename T>
struct RruWideBackward : RruOuterBackward<T> {
  using Base = RruOuterBackward<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::p, Base::g, Base::tokens, Base::live_rows;

  const bool wants_x;
  T* weights;                     // (T, B): k, the weight of a token in G
  T *grad_c, *grad_o;             // (n, g), (p, g): gradients of W^c without Z, and of W^o
  T *grad_wx, *grad_wh, *grad_b;  // (g, m), (g, n), (g,): the sparse part of the gradients of W^x, W^h and b
  T* grad_x = nullptr;            // (T, B, m)
  Packed<T> to_h, to_x;           // W^h, W^x
  const Packed<T> outer;          // Eq. 4 and 6
  Buffer<T> grads;                // s dj of all live entries
  Buffer<int> bounds;             // of the live entries, (T, B, blocks + 1); zero past the end of a sequence

  explicit RruWideBackward(Arguments& in)
      : Base(in, /*wide=*/true),
        wants_x(in.flag("wants_x")),
        weights(in.tensor<T>("weights", {steps, batch})),
        grad_c(in.tensor<T>("grad_weight_c", {n, g})),
        grad_o(in.tensor<T>("grad_weight_o", {p, g})),
        grad_wx(in.tensor<T>("grad_weight_x", {g, m})),
        grad_wh(in.tensor<T>("grad_weight_h", {g, n})),
        grad_b(in.tensor<T>("grad_bias_j", {g})),
        to_h(g, n),
        to_x(wants_x ? g : 0, m),
        outer(this->pack_outputs()),
        grads(tokens() * g),
        bounds(tokens() * (sparse_blocks(g) + 1), 0) {
    if (wants_x) grad_x = in.tensor<T>("grad_x", {steps, batch, m});
    to_h.put(this->weight_h, g, n, 0, 0);
    if (wants_x) to_x.put(this->weight_x, g, m, 0, 0);
  }

  struct Scratch {
    Rows<T> grad_h, decayed, both, found;
    std::vector<SparseRow<T>> live;
    Scratch(const RruWideBackward& cell, int rows)
        : grad_h(rows, cell.to_h.padded()),
          decayed(rows, cell.to_h.padded()),
          both(rows, cell.outer.padded()),
          found(rows, cell.g),
          live(rows) {}
  };
  size_t weight_bytes() const { return to_h.bytes() + outer.bytes(); }

  void step(Worker<T>& worker, Scratch& scratch) {
    worker.rows([&](const Row& row) {
      const int r = row.index;
      this->output_row(row, scratch.grad_h[r], scratch.both[r], scratch.decayed[r], worker.thread);
      const SparseRow<T> live = live_rows.checked(row.token);
      find_bounds(live.index, live.count, sparse_blocks(g), bounds_of(row.token));
      scratch.live[r] = with_bounds(live, row.token);
    });
    worker.product_at(scratch.both, outer, scratch.live, scratch.found);  // the gradient of d
    worker.rows([&](const Row& row) { inner_row(row, scratch); });
    worker.product(scratch.live, to_h, scratch.decayed, scratch.grad_h);
  }
  void finish(int threads) const {
    this->sum_kept();
    in_parallel(threads, [&](int thread) { gradients({thread, threads}); }, [] {});
  }

 private:
  int* bounds_of(size_t token) const { return bounds.get() + token * (sparse_blocks(g) + 1); }
  SparseRow<T> with_bounds(SparseRow<T> row, size_t token) const {
    row.bounds = bounds_of(token);
    return row;
  }
  // A token's s dj.
  SparseRow<T> grads_of(size_t token) const {
    SparseRow<T> row = with_bounds(live_rows[token], token);
    row.value = grads.get() + live_rows.start(token);
    return row;
  }

  // Eq. 1 and 3: computes s dj and k from the gradient of d. Where d is live it is j times `through`, so the sum of
  // dj * j is that of found * d. Elsewhere dj is zero, unless the gradient of d is infinite or NaN.
  void inner_row(const Row& row, Scratch& scratch) const {
    const SparseRow<T>& live = scratch.live[row.index];
    const T *found = scratch.found[row.index], *y = row_of(this->y, row.token, m + n) + m;
    const T scale = this->scale[row.token], factor = scale * this->through;
    const T k = scale * scale * dot(found, live.value, live.count) / g;
    T *target = grads.get() + live_rows.start(row.token), *decayed = scratch.decayed[row.index];
    for (int i = 0; i < live.count; ++i) target[i] = found[i] * (live.value[i] != 0 ? factor : T(0));
    for (int f = 0; f < n; ++f) decayed[f] -= k * y[f];
    weights[row.token] = k;
    scratch.live[row.index] = grads_of(row.token);
  }

  // Compute this share of the gradients of all weights and of x.
  void gradients(Share share) const {
    auto both = [&](int t) {  // d, and s dj
      const SparseRow<T> d = live_rows[t];
      return SparseToken<T, 2>{d.index, {d.value, grads_of(t).value}, d.count};
    };
    auto input = [&](int t, int column, int size, T* target) {
      std::copy_n(row_of(this->xh, t, m + n) + column, size, target);
    };
    auto put = [&](int first, int count, int column, int size, const T* sums, int width) {
      const int in_x = std::max(0, std::min(size, m - column));
      for (int f = 0; f < count; ++f) {
        const T* from = sums + f * width;
        std::copy_n(from, in_x, row_of(grad_wx, first + f, m) + column);
        std::copy(from + in_x, from + size, row_of(grad_wh, first + f, n) + column + in_x - m);
      }
    };
    this->outer_gradients(both, share, grad_c, grad_o, GradientOf{input, m + n, put});
    bias_gradient(share);
    if (wants_x) input_gradient(share);
  }
  void bias_gradient(Share share) const {
    const int first = share.first(g), last = share.last(g);
    std::fill(grad_b + first, grad_b + last, T(0));
    for (size_t t = 0; t < tokens(); ++t) {
      const SparseRow<T> row = grads_of(t);
      const int* end = row.index + row.count;
      for (const int* at = std::lower_bound(row.index, end, first); at < end && *at < last; ++at)
        grad_b[*at] += row.value[at - row.index];
    }
  }
  void input_gradient(Share share) const {  // of this share of the tokens
    constexpr int together = 64;
    const Rows<T> found(together, to_x.padded());
    std::vector<SparseRow<T>> rows(together);
    const int end = share.last(static_cast<int>(tokens()));
    for (int token = share.first(static_cast<int>(tokens())); token < end; token += together) {
      const int count = std::min(together, end - token);
      for (int r = 0; r < count; ++r) rows[r] = grads_of(token + r);
      multiply_sparse<T>(rows.data(), count, to_x, nullptr, found, {0, 1});
      for (int r = 0; r < count; ++r) {
        const T k = weights[token + r], *y = row_of(this->y, token + r, m + n);
        T* target = row_of(grad_x, token + r, m);
        for (int f = 0; f < m; ++f) target[f] = found[r][f] - k * y[f];
      }
    }
  }
};
}  // namespace rru::RRU_ISA
