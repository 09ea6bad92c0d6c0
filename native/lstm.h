// The LSTM over time, forward and backward. The equations are in nn/lstm.py.
#pragma once
#include "pointwise.h"
#include "scan.h"

namespace rru::RRU_ISA {

// Shared by the LSTM and the Mogrifier: arguments, and the part of a step after the product with the weights.
// The gates are i, f, j, o, each n wide. With `capped`, the input gate is at most 1 - f, as in the Mogrifier.
template <typename T, bool capped>
struct LstmBase : Scan<T> {
  using Base = Scan<T>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::save;

  const T *h0, *c0, *reset_h, *reset_c;             // (B, n); the last two with has_resets
  const T *weight_x, *weight_h, *bias;              // (4n, m), (4n, n), (4n,)
  T* outputs = nullptr;                             // (T, B, n), in the forward pass
  T *xh = nullptr, *gates = nullptr, *c = nullptr;  // (T, B, m + n), (T, B, 4n), (T, B, n), with `save`

  LstmBase(Arguments& in, bool backward) : Scan<T>(in, backward) {
    h0 = in.tensor<const T>("h0", {batch, n}), c0 = in.tensor<const T>("c0", {batch, n});
    reset_h = this->template reset_part<const T>(in, "reset_h");
    reset_c = this->template reset_part<const T>(in, "reset_c");
    weight_x = in.tensor<const T>("weight_x", {4, n, m}), weight_h = in.tensor<const T>("weight_h", {4, n, n});
    bias = in.tensor<const T>("bias", {4, n});
  }
  void read_results(Arguments& in, bool backward) {
    if (!backward) outputs = in.tensor<T>("outputs", {steps, batch, n});
    if (!save) return;
    xh = in.tensor<T>("xh", {steps, batch, m + n});
    gates = in.tensor<T>("gates", {steps, batch, 4, n});
    c = in.tensor<T>("c", {steps, batch, n});
  }
  int mask_size() const { return n; }

  // Return the matrix that maps [x, h] to the gates' sums.
  Packed<T> pack_weights() const {
    Packed<T> packed(m + n, 4 * n, this->packs());
    packed.put_transposed(weight_x, 4 * n, m, 0, 0);
    packed.put_transposed(weight_h, 4 * n, n, m, 0);
    packed.put_bias(bias, 4 * n, 0);
    this->finish_packing(packed);
    return packed;
  }

  // Update c and compute h from the gates' sums. Overwrite the sums with the gates.
  void forward_row(const Row& row, const T* keep, T* sums, T* c_now, T* h) const {
    T *i = sums, *f = i + n, *j = f + n, *o = j + n;
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> input = sigmoid<T>(load(i)), forget = sigmoid<T>(load(f));
      const Vector<T> candidate = tanh<T>(load(j)), output = sigmoid<T>(load(o));
      const Vector<T> share = capped ? (input > 1 - forget ? 1 - forget : input) : input;
      const Vector<T> after = forget * load(c_now) + share * candidate * load(keep);
      store(i, input), store(f, forget), store(j, candidate), store(o, output);
      store(c_now, after), store(h, tanh<T>(after) * output);
    });
    std::copy_n(h, n, row_of(outputs, row.token, n));
    if (!save) return;
    std::copy_n(sums, 4 * n, row_of(gates, row.token, 4 * n));
    std::copy_n(c_now, n, row_of(c, row.token, n));
  }

  // Compute the gradients of the gates' sums from that of h. Update `grad_c` to the gradient of the previous c.
  void backward_row(const Row& row, const T* keep, const T* grad_h, const T* grad_output, T* grad_c, T* grad_sums) const {
    const T *i = row_of(gates, row.token, 4 * n), *f = i + n, *j = f + n, *o = j + n;
    const T* c_before = this->is_reset(row) ? row_of(reset_c, row.sequence, n)
                        : row.first         ? row_of(c0, row.sequence, n)
                                            : row_of(c, row.before, n);
    const T* c_after = row_of(c, row.token, n);
    T *grad_i = grad_sums, *grad_f = grad_i + n, *grad_j = grad_f + n, *grad_o = grad_j + n;
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> input = load(i), forget = load(f), candidate = load(j), output = load(o), kept = load(keep);
      const Vector<T> squashed = tanh<T>(load(c_after)), dh = load(grad_h) + load(grad_output);
      const Vector<T> dc = load(grad_c) + dh * output * (1 - squashed * squashed);
      Vector<T> share = input, through_input = Vector<T>{} + 1, through_forget{};
      if (capped) {  // the gradient goes to the smaller value, half to each if equal, as in torch.minimum
        const Vector<T> one = Vector<T>{} + 1, half = one / 2, zero{}, rest = 1 - forget;
        share = input > rest ? rest : input;
        through_input = input < rest ? one : input == rest ? half : zero;
        through_forget = one - through_input;
      }
      const Vector<T> dshare = dc * candidate * kept;
      store(grad_o, dh * squashed * output * (1 - output));
      store(grad_j, dc * share * kept * (1 - candidate * candidate));
      store(grad_i, dshare * through_input * input * (1 - input));
      store(grad_f, (dc * load(c_before) - dshare * through_forget) * forget * (1 - forget));
      store(grad_c, dc * forget);
    });
  }
};

// The given gradients, and the gradients to compute: of the initial state, the state of a reset and the gates' sums.
template <typename T>
struct LstmGradients {
  const T *outputs, *last_h, *last_c;  // (T, B, n), (B, n), (B, n)
  T *h0, *c0, *sums;                   // (B, n), (B, n), (T, B, 4n)
  T *reset_h, *reset_c;                // (B, n), with has_resets: zero at first

  LstmGradients(Arguments& in, const Scan<T>& scan) {
    const int batch = scan.batch, n = scan.n;
    outputs = in.tensor<const T>("grad_outputs", {scan.steps, batch, n});
    last_h = in.tensor<const T>("grad_last_h", {batch, n}), last_c = in.tensor<const T>("grad_last_c", {batch, n});
    h0 = in.tensor<T>("grad_h0", {batch, n}), c0 = in.tensor<T>("grad_c0", {batch, n});
    reset_h = scan.template reset_part<T>(in, "grad_reset_h"), reset_c = scan.template reset_part<T>(in, "grad_reset_c");
    sums = in.tensor<T>("grad_gates", {scan.steps, batch, 4, n});
  }
};

// The part of a backward loop that the LSTM and the Mogrifier share, on top of their arguments.
template <typename T, typename Cell>
struct LstmBackwardBase : Cell {
  using Cell::n;
  static constexpr bool backward = true;

  const LstmGradients<T> grad;
  Packed<T> to_h;  // from the gates' sums

  explicit LstmBackwardBase(Arguments& in) : Cell(in, backward), grad(in, *this), to_h(4 * n, n) {
    to_h.put(this->weight_h, 4 * n, n, 0, 0);
    this->finish_packing(to_h);
  }
  template <typename Scratch>
  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(grad.last_h, row.sequence, n), n, scratch.grad_h[row.index]);
    std::copy_n(row_of(grad.last_c, row.sequence, n), n, row_of(grad.c0, row.sequence, n));
  }
  template <typename Scratch>
  void reset(Scratch& scratch, const Row& row) const {
    move_row(scratch.grad_h[row.index], row_of(grad.reset_h, row.sequence, n), n);
    move_row(row_of(grad.c0, row.sequence, n), row_of(grad.reset_c, row.sequence, n), n);
  }
  // Compute the gradients of the gates' sums, which `from` then points to.
  template <typename Scratch>
  void gates_step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) {
      T* grad_sums = row_of(grad.sums, row.token, 4 * n);
      this->backward_row(row, worker.mask(row), scratch.grad_h[row.index], row_of(grad.outputs, row.token, n),
                         row_of(grad.c0, row.sequence, n), grad_sums);
      scratch.from[row.index] = grad_sums;
    });
  }
  template <typename Scratch>
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.grad_h[row.index], n, row_of(grad.h0, row.sequence, n));
  }
};

template <typename T>
struct Lstm : LstmBase<T, false> {
  Lstm(Arguments& in, bool backward) : LstmBase<T, false>(in, backward) {
    this->read_results(in, backward);
  }
};

template <typename T>
struct LstmForward : Lstm<T> {
  using Base = Lstm<T>;
  using Base::batch, Base::m, Base::n;
  static constexpr bool backward = false;

  T *last_h, *last_c;  // (B, n); last_c holds c during the loop
  const Packed<T> weights;

  explicit LstmForward(Arguments& in) : Lstm<T>(in, backward), weights(this->pack_weights()) {
    last_h = in.tensor<T>("last_h", {batch, n}), last_c = in.tensor<T>("last_c", {batch, n});
  }

  struct Scratch {
    Rows<T> xh, gates;
    Scratch(const LstmForward& cell, int rows) : xh(rows, cell.m + cell.n), gates(rows, cell.weights.padded()) {}
  };
  size_t weight_bytes() const { return weights.bytes(); }

  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->h0, row.sequence, n), n, scratch.xh[row.index] + m);
    std::copy_n(row_of(this->c0, row.sequence, n), n, row_of(last_c, row.sequence, n));
  }
  void reset(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->reset_h, row.sequence, n), n, scratch.xh[row.index] + m);
    std::copy_n(row_of(this->reset_c, row.sequence, n), n, row_of(last_c, row.sequence, n));
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) { this->read_input(row, scratch.xh[row.index], this->xh); });
    worker.product(scratch.xh, weights, scratch.gates);
    worker.rows([&](const Row& row) {
      T *c = row_of(last_c, row.sequence, n), *h = scratch.xh[row.index] + m;
      this->forward_row(row, worker.mask(row), scratch.gates[row.index], c, h);
    });
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.xh[row.index] + m, n, row_of(last_h, row.sequence, n));
  }
};

template <typename T>
struct LstmBackward : LstmBackwardBase<T, Lstm<T>> {
  using LstmBackwardBase<T, Lstm<T>>::LstmBackwardBase;

  struct Scratch {
    Rows<T> grad_h;
    RowsElsewhere<T> from;
    Scratch(const LstmBackward& cell, int rows) : grad_h(rows, cell.to_h.padded()), from(rows) {}
  };
  size_t weight_bytes() const { return this->to_h.bytes(); }

  void step(Worker<T>& worker, Scratch& scratch) const {
    this->gates_step(worker, scratch);
    worker.product(scratch.from, this->to_h, scratch.grad_h);
  }
};
}  // namespace rru::RRU_ISA
