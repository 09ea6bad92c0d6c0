// The LSTM over time, forward and backward. The equations are in nn/lstm.py; a loop here keeps what depends on the step
// before, products over all steps are left to the caller.
#pragma once
#include "pointwise.h"
#include "scan.h"

namespace rru::RRU_ISA {

// What an LSTM's last part does: gates (i, f, j, o, each n wide) to c and h, and back.
template <typename T>
struct LstmStep {
  bool capped;  // Mogrifier: the input gate is at most 1 - f

  // `gates` become their activations; `c` is read and written.
  void forward(int n, T* gates, const T* keep, const T* c_before, T* c_after, T* h_after) const {
    T *i = gates, *f = i + n, *j = f + n, *o = j + n;
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> input = sigmoid<T>(load(i)), forget = sigmoid<T>(load(f));
      const Vector<T> candidate = tanh<T>(load(j)), output = sigmoid<T>(load(o));
      const Vector<T> share = capped ? (input > 1 - forget ? 1 - forget : input) : input;
      const Vector<T> c = forget * load(c_before) + share * candidate * load(keep);
      store(i, input), store(f, forget), store(j, candidate), store(o, output);
      store(c_after, c), store(h_after, tanh<T>(c) * output);
    });
  }

  // Gradients of the gates' sums, and of c before: `grad_c` is read and written.
  void backward(int n, const T* gates, const T* keep, const T* c_before, const T* c_after, const T* grad_h, T* grad_c,
                T* grad_gates) const {
    const T *i = gates, *f = i + n, *j = f + n, *o = j + n;
    T *grad_i = grad_gates, *grad_f = grad_i + n, *grad_j = grad_f + n, *grad_o = grad_j + n;
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> input = load(i), forget = load(f), candidate = load(j), output = load(o), kept = load(keep);
      const Vector<T> squashed = tanh<T>(load(c_after)), dh = load(grad_h);
      const Vector<T> dc = load(grad_c) + dh * output * (1 - squashed * squashed);
      Vector<T> share = input, through_input = Vector<T>{} + 1, through_forget{};
      if (capped) {  // the smaller of the two takes the gradient, both half where they are equal, as torch.minimum has it
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

// What the backward pass of an LSTM reads and writes, row by row.
template <typename T>
struct LstmTape {
  const Scan<T>& scan;
  const LstmStep<T> lstm;
  const T *c0, *gates, *cells, *grad_outputs;  // (B, n), (T, B, 4n), (T, B, n), (T, B, n)
  T *grad_c, *grad_gates;                      // (B, n), (T, B, 4n)

  // The s-th step of a sequence, `grad_h` being the gradient of its state through the next: where its gates' are now.
  const T* backward(const Sequence& sequence, int s, T* grad_h, T* keep) const {
    const int n = scan.n;
    const size_t token = scan.token(sequence, s);
    const T* c_before = s == 0 ? row_of(c0, sequence.row, n) : cells + scan.token(sequence, s - 1) * n;
    const T* grad_output = grad_outputs + token * n;
    T* target = grad_gates + token * 4 * n;
    for (int f = 0; f < n; ++f) grad_h[f] += grad_output[f];
    scan.mask(sequence, s, n, keep);
    lstm.backward(n, gates + token * 4 * n, keep, c_before, cells + token * n, grad_h, row_of(grad_c, sequence.row, n),
                  target);
    return target;
  }
};

template <typename T>
void lstm_forward(Arguments in) {
  T *last_h = in.tensor<T>(), *last_c = in.tensor<T>();  // (B, n)
  const Scan<T> scan(in);
  const int m = scan.m, n = scan.n;
  const T *h0 = in.tensor<T>(), *c0 = in.tensor<T>();                                      // (B, n)
  const T *weight_x = in.tensor<T>(), *weight_h = in.tensor<T>(), *bias = in.tensor<T>();  // (4n, m), (4n, n), (4n,)
  const LstmStep<T> lstm{false};
  T* outputs = in.tensor<T>();                                                     // (T, B, n)
  T *xh = in.tensor<T>(), *saved_gates = in.tensor<T>(), *cells = in.tensor<T>();  // (T, B, m + n), (T, B, 4n), (T, B, n)

  Packed<T> weights(m + n, 4 * n, scan.packs());
  weights.put_transposed(weight_x, 4 * n, m, 0, 0);
  weights.put_transposed(weight_h, 4 * n, n, m, 0);
  const std::vector<T> start_row = padded<T>(weights.padded(), {{bias, 4 * n}});
  struct Scratch {
    Rows<T> before, gates;
    std::vector<const T*> start;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, m + n), Rows<T>(rows, weights.padded()),
                   std::vector<const T*>(rows, start_row.data())};
  };
  const Teams teams(scan, in.threads, weights.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<T> keep(n, T(1));
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(h0, sequences[i].row, n), n, scratch.before.at[i] + m);
      std::copy_n(row_of(c0, sequences[i].row, n), n, row_of(last_c, sequences[i].row, n));
    });
    for (int s = 0, count; (count = running(sequences, s)) > 0; ++s) {
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        std::copy_n(scan.x + token * m, m, scratch.before.at[i]);
        if (scan.save) std::copy_n(scratch.before.at[i], m + n, xh + token * (m + n));
      });
      member.product(const_cast<const T**>(scratch.before.at.data()), count, weights, scratch.start.data(),
                     scratch.gates.at.data());
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        T *c = row_of(last_c, sequences[i].row, n), *h = scratch.before.at[i] + m, *gates = scratch.gates.at[i];
        scan.mask(sequences[i], s, n, keep.data());
        lstm.forward(n, gates, keep.data(), c, c, h);
        std::copy_n(h, n, outputs + token * n);
        if (!scan.save) return;
        std::copy_n(gates, 4 * n, saved_gates + token * 4 * n);
        std::copy_n(c, n, cells + token * n);
      });
    }
    member.rows(rows, [&](int i) {
      std::copy_n(scratch.before.at[i] + m, n, row_of(last_h, sequences[i].row, n));
    });
  });
}

template <typename T>
void lstm_backward(Arguments in) {
  const Scan<T> scan(in);
  const int n = scan.n;
  in.skip();  // h0
  const T* c0 = in.tensor<T>();
  in.skip();  // weight_x
  const T* weight_h = in.tensor<T>();
  in.skip(3);  // bias, outputs, xh
  const T *saved_gates = in.tensor<T>(), *cells = in.tensor<T>();
  const T *grad_outputs = in.tensor<T>(), *grad_last_h = in.tensor<T>(), *grad_last_c = in.tensor<T>();
  T *grad_h0 = in.tensor<T>(), *grad_c0 = in.tensor<T>();  // (B, n)
  T* grad_gates = in.tensor<T>();                          // (T, B, 4n)

  const LstmTape<T> tape{scan, {false}, c0, saved_gates, cells, grad_outputs, grad_c0, grad_gates};
  Packed<T> weights(4 * n, n);
  weights.put(weight_h, 4 * n, n, 0, 0);
  struct Scratch {
    Rows<T> grad_h;
    std::vector<const T*> from;
  };
  auto make = [&](int rows) { return Scratch{Rows<T>(rows, weights.padded()), std::vector<const T*>(rows)}; };
  const Teams teams(scan, in.threads, weights.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<T> keep(n, T(1));
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(grad_last_h, sequences[i].row, n), n, scratch.grad_h.at[i]);
      std::copy_n(row_of(grad_last_c, sequences[i].row, n), n, row_of(grad_c0, sequences[i].row, n));
    });
    for (int s = rows ? sequences[0].length - 1 : -1; s >= 0; --s) {
      const int count = running(sequences, s);
      member.rows(count, [&](int i) {
        scratch.from[i] = tape.backward(sequences[i], s, scratch.grad_h.at[i], keep.data());
      });
      member.product(scratch.from.data(), count, weights, static_cast<const T* const*>(nullptr),
                     scratch.grad_h.at.data());
    }
    member.rows(rows, [&](int i) {
      std::copy_n(scratch.grad_h.at[i], n, row_of(grad_h0, sequences[i].row, n));
    });
  });
}
}  // namespace rru::RRU_ISA
