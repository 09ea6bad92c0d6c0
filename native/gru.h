// The GRU over time, forward and backward. The equations are in nn/gru.py.
#pragma once
#include "pointwise.h"
#include "scan.h"

namespace rru::RRU_ISA {

// The gates are r, u and the candidate, each n wide.
template <typename T>
struct Gru : Scan<T> {
  using Base = Scan<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::save;

  const bool reset_after;
  const T *h0, *reset_h;                                        // (B, n); the latter with has_resets
  const T *weight_x, *weight_h, *bias, *bias_h = nullptr;       // (3n, m), (3n, n), (3n,), (n,) if reset_after
  T* outputs = nullptr;                                         // (T, B, n), in the forward pass
  T *xh = nullptr, *gates = nullptr;                            // (T, B, m + n), (T, B, 3n), with `save`
  T* inner = nullptr;  // (T, B, n), with `save`: r h; with reset_after, the product with h that r multiplies

  Gru(Arguments& in, bool backward) : Scan<T>(in, backward), reset_after(in.flag("reset_after")) {
    h0 = in.tensor<const T>("h0", {batch, n}), reset_h = this->template reset_part<const T>(in, "reset_h");
    weight_x = in.tensor<const T>("weight_x", {3, n, m}), weight_h = in.tensor<const T>("weight_h", {3, n, n});
    bias = in.tensor<const T>("bias", {3, n});
    if (reset_after) bias_h = in.tensor<const T>("bias_h", {n});
    if (!backward) outputs = in.tensor<T>("outputs", {steps, batch, n});
    if (!save) return;
    xh = in.tensor<T>("xh", {steps, batch, m + n});
    gates = in.tensor<T>("gates", {steps, batch, 3, n});
    inner = in.tensor<T>("inner", {steps, batch, n});
  }
  int mask_size() const { return n; }
};

// A step takes two products: [x, h] for r and u, then [x, r h] for the candidate. With reset_after, r multiplies the
// candidate's product with h, so the two products are x for all three gates, and h for all three gates.
template <typename T>
struct GruForward : Gru<T> {
  using Base = Gru<T>;
  using Base::m, Base::n, Base::reset_after, Base::save;
  static constexpr bool backward = false;

  T* last;  // (B, n)
  Packed<T> first, second;

  explicit GruForward(Arguments& in)
      : Gru<T>(in, backward),
        last(in.tensor<T>("last_h", {this->batch, n})),
        first(reset_after ? m : m + n, reset_after ? 3 * n : 2 * n, this->packs()),
        second(reset_after ? n : m + n, reset_after ? 3 * n : n, this->packs()) {
    const size_t candidate = 2 * static_cast<size_t>(n);  // its first row
    if (reset_after) {
      first.put_transposed(this->weight_x, 3 * n, m, 0, 0);
      first.put_bias(this->bias, 3 * n, 0);
      second.put_transposed(this->weight_h, 3 * n, n, 0, 0);
      second.put_bias(this->bias_h, n, 2 * n);
    } else {
      first.put_transposed(this->weight_x, 2 * n, m, 0, 0);
      first.put_transposed(this->weight_h, 2 * n, n, m, 0);
      first.put_bias(this->bias, 2 * n, 0);
      second.put_transposed(row_of(this->weight_x, candidate, m), n, m, 0, 0);
      second.put_transposed(row_of(this->weight_h, candidate, n), n, n, m, 0);
      second.put_bias(this->bias + candidate, n, 0);
    }
    this->finish_packing(first), this->finish_packing(second);
  }

  struct Scratch {
    Rows<T> xh, xrh, gates, sums;  // [x, h], [x, r h], the results of the two products
    RowsElsewhere<T> h;
    Scratch(const GruForward& cell, int rows)
        : xh(rows, cell.m + cell.n),
          xrh(rows, cell.m + cell.n),
          gates(rows, cell.first.padded()),
          sums(rows, cell.second.padded()),
          h(rows) {}
  };
  size_t weight_bytes() const { return first.bytes() + second.bytes(); }

  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->h0, row.sequence, n), n, scratch.xh[row.index] + m);
    scratch.h[row.index] = scratch.xh[row.index] + m;
  }
  void reset(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->reset_h, row.sequence, n), n, scratch.xh[row.index] + m);
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) { this->read_input(row, scratch.xh[row.index], this->xh); });
    worker.product(scratch.xh, first, scratch.gates);
    if (reset_after) worker.product(scratch.h, second, scratch.sums);
    worker.rows([&](const Row& row) { reset_row(row, scratch); });
    if (!reset_after) worker.product(scratch.xrh, second, scratch.sums);
    worker.rows([&](const Row& row) { update_row(row, scratch, worker.mask(row)); });
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.h[row.index], n, row_of(last, row.sequence, n));
  }

 private:
  // Compute r and u from their sums, then prepare the candidate's product.
  void reset_row(const Row& row, Scratch& scratch) const {
    const bool reset_after = this->reset_after;
    T *r = scratch.gates[row.index], *u = r + n, *xrh = scratch.xrh[row.index];
    const T *h = scratch.h[row.index], *from_h = scratch.sums[row.index];
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> reset = sigmoid<T>(reset_after ? load(r) + load(from_h) : load(r));
      store(u, sigmoid<T>(reset_after ? load(u) + load(from_h + n) : load(u)));
      store(r, reset);
      if (reset_after)
        store(r + 2 * n, load(r + 2 * n) + reset * load(from_h + 2 * n));
      else
        store(xrh + m, reset * load(h));
    });
    if (!reset_after) std::copy_n(scratch.xh[row.index], m, xrh);
  }

  // Compute the candidate from its sum, then the new state.
  void update_row(const Row& row, Scratch& scratch, const T* keep) const {
    T *gates = scratch.gates[row.index], *u = gates + n, *h = scratch.xh[row.index] + m;
    T* j = reset_after ? gates + 2 * n : scratch.sums[row.index];
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> candidate = tanh<T>(load(j)), update = load(u);
      store(j, candidate);
      store(h, update * load(h) + (1 - update) * candidate * load(keep));
    });
    std::copy_n(h, n, row_of(this->outputs, row.token, n));
    if (!save) return;
    T* saved = row_of(this->gates, row.token, 3 * n);
    std::copy_n(gates, 2 * n, saved);
    std::copy_n(j, n, saved + 2 * n);
    const T* inner = reset_after ? scratch.sums[row.index] + 2 * n : scratch.xrh[row.index] + m;
    std::copy_n(inner, n, row_of(this->inner, row.token, n));
  }
};

template <typename T>
struct GruBackward : Gru<T> {
  using Base = Gru<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::reset_after;
  static constexpr bool backward = true;

  const T *grad_outputs, *grad_last;  // (T, B, n), (B, n)
  T *grad_h0, *grad_gates;            // (B, n); (T, B, 3n): gradient of the sums of r, u and the candidate
  T* grad_reset_h;                    // (B, n), with has_resets: zero at first
  T* grad_inner = nullptr;            // (T, B, n), with reset_after: gradient of the candidate's product with h
  Packed<T> gates_to_h, candidate_to_h;

  explicit GruBackward(Arguments& in) : Gru<T>(in, backward), gates_to_h(2 * n, n), candidate_to_h(n, n) {
    grad_outputs = in.tensor<const T>("grad_outputs", {steps, batch, n});
    grad_last = in.tensor<const T>("grad_last_h", {batch, n});
    grad_h0 = in.tensor<T>("grad_h0", {batch, n}), grad_reset_h = this->template reset_part<T>(in, "grad_reset_h");
    grad_gates = in.tensor<T>("grad_gates", {steps, batch, 3, n});
    if (reset_after) grad_inner = in.tensor<T>("grad_inner", {steps, batch, n});
    gates_to_h.put(this->weight_h, 2 * n, n, 0, 0);
    candidate_to_h.put(row_of(this->weight_h, 2 * static_cast<size_t>(n), n), n, n, 0, 0);
    this->finish_packing(gates_to_h), this->finish_packing(candidate_to_h);
  }

  struct Scratch {
    Rows<T> grad_h, from_candidate, direct;  // `direct`: the part that bypasses the gates' product
    RowsElsewhere<T> from;
    Scratch(const GruBackward& cell, int rows)
        : grad_h(rows, cell.gates_to_h.padded()),
          from_candidate(rows, cell.candidate_to_h.padded()),
          direct(rows, cell.gates_to_h.padded()),
          from(rows) {}
  };
  size_t weight_bytes() const { return gates_to_h.bytes() + candidate_to_h.bytes(); }

  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(grad_last, row.sequence, n), n, scratch.grad_h[row.index]);
  }
  void reset(Scratch& scratch, const Row& row) const {
    move_row(scratch.grad_h[row.index], row_of(grad_reset_h, row.sequence, n), n);
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) { candidate_row(row, scratch, worker.mask(row)); });
    worker.product(scratch.from, candidate_to_h, scratch.from_candidate);
    worker.rows([&](const Row& row) { reset_row(row, scratch); });
    worker.product(scratch.from, gates_to_h, scratch.direct, scratch.grad_h);
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.grad_h[row.index], n, row_of(grad_h0, row.sequence, n));
  }

 private:
  // Compute the gradients of the sums of u and the candidate from the gradient of h.
  void candidate_row(const Row& row, Scratch& scratch, const T* keep) const {
    const bool reset_after = this->reset_after;
    const T *r = row_of(this->gates, row.token, 3 * n), *u = r + n, *j = u + n;
    const T *h = row_of(this->xh, row.token, m + n) + m, *inner = row_of(this->inner, row.token, n);
    const T *grad_h = scratch.grad_h[row.index], *grad_output = row_of(grad_outputs, row.token, n);
    T *grad_r = row_of(grad_gates, row.token, 3 * n), *grad_u = grad_r + n, *grad_j = grad_u + n;
    T *direct = scratch.direct[row.index], *grad_product = reset_after ? row_of(grad_inner, row.token, n) : nullptr;
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> dh = load(grad_h) + load(grad_output), update = load(u), candidate = load(j);
      const Vector<T> kept = load(keep), reset = load(r);
      const Vector<T> dj = dh * (1 - update) * kept * (1 - candidate * candidate);
      store(grad_j, dj);
      store(grad_u, dh * (load(h) - candidate * kept) * update * (1 - update));
      store(direct, dh * update);
      if (reset_after) {
        store(grad_r, dj * load(inner) * reset * (1 - reset));
        store(grad_product, dj * reset);
      }
    });
    scratch.from[row.index] = reset_after ? grad_product : grad_j;
  }

  // Compute the gradient of r's sum from that of the candidate's product with h.
  void reset_row(const Row& row, Scratch& scratch) const {
    const bool reset_after = this->reset_after;
    const T *r = row_of(this->gates, row.token, 3 * n), *h = row_of(this->xh, row.token, m + n) + m;
    const T* from_candidate = scratch.from_candidate[row.index];
    T *grad_r = row_of(grad_gates, row.token, 3 * n), *direct = scratch.direct[row.index];
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> back = load(from_candidate), reset = load(r);
      if (reset_after) {
        store(direct, load(direct) + back);
      } else {
        store(direct, load(direct) + back * reset);
        store(grad_r, back * load(h) * reset * (1 - reset));
      }
    });
    scratch.from[row.index] = grad_r;
  }
};
}  // namespace rru::RRU_ISA
