// The GRU over time, forward and backward. The equations are in nn/gru.py; a loop here keeps what depends on the step
// before, products over all steps are left to the caller.
#pragma once
#include "pointwise.h"
#include "scan.h"

namespace rru::RRU_ISA {

template <typename T>
void gru_forward(Arguments in) {
  T* last = in.tensor<T>();  // (B, n)
  const Scan<T> scan(in);
  const int m = scan.m, n = scan.n;
  const bool reset_after = in.number();
  const T* h0 = in.tensor<T>();
  const T *weight_x = in.tensor<T>(), *weight_h = in.tensor<T>(), *bias = in.tensor<T>();  // (3n, m), (3n, n), (3n,)
  const T* bias_h = reset_after ? in.tensor<T>() : nullptr;                                // (n,)
  T* outputs = in.tensor<T>();                            // (T, B, n)
  T *xh = in.tensor<T>(), *saved_gates = in.tensor<T>();  // (T, B, m + n); (T, B, 3n): r, u, candidate
  T* inner = in.tensor<T>();  // (T, B, n): r h, or with reset_after the product with h that r multiplies

  // Two products: [x, h] for the gates r and u, then [x, r h] for the candidate; or with reset_after x for all three, and
  // h for all three, as r is between the candidate's two.
  const int depth_first = reset_after ? m : m + n, depth_second = reset_after ? n : m + n;
  Packed<T> first(depth_first, reset_after ? 3 * n : 2 * n, scan.packs());
  Packed<T> second(depth_second, reset_after ? 3 * n : n, scan.packs());
  const size_t gates_only = 2 * static_cast<size_t>(n);
  std::vector<T> first_row, second_row;
  if (reset_after) {
    first.put_transposed(weight_x, 3 * n, m, 0, 0);
    second.put_transposed(weight_h, 3 * n, n, 0, 0);
    first_row = padded<T>(first.padded(), {{bias, 3 * n}});
    second_row.resize(second.padded());
    std::copy_n(bias_h, n, second_row.begin() + 2 * n);
  } else {
    first.put_transposed(weight_x, 2 * n, m, 0, 0);
    first.put_transposed(weight_h, 2 * n, n, m, 0);
    second.put_transposed(weight_x + gates_only * m, n, m, 0, 0);
    second.put_transposed(weight_h + gates_only * n, n, n, m, 0);
    first_row = padded<T>(first.padded(), {{bias, 2 * n}});
    second_row = padded<T>(second.padded(), {{bias + 2 * n, n}});
  }
  struct Scratch {
    Rows<T> before, reset, gates, sums;
    std::vector<const T*> state, start_first, start_second;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, m + n),
                   Rows<T>(rows, m + n),
                   Rows<T>(rows, first.padded()),
                   Rows<T>(rows, second.padded()),
                   std::vector<const T*>(rows),
                   std::vector<const T*>(rows, first_row.data()),
                   std::vector<const T*>(rows, second_row.data())};
  };
  const Teams teams(scan, in.threads, first.bytes() + second.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<T> keep(n, T(1));
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(h0, sequences[i].row, n), n, scratch.before.at[i] + m);
      scratch.state[i] = scratch.before.at[i] + m;
    });
    for (int s = 0, count; (count = running(sequences, s)) > 0; ++s) {
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        std::copy_n(scan.x + token * m, m, scratch.before.at[i]);
        if (scan.save) std::copy_n(scratch.before.at[i], m + n, xh + token * (m + n));
      });
      auto second_product = [&](const T* const* rows) {
        member.product(rows, count, second, scratch.start_second.data(), scratch.sums.at.data());
      };
      member.product(const_cast<const T**>(scratch.before.at.data()), count, first, scratch.start_first.data(),
                     scratch.gates.at.data());
      if (reset_after) second_product(scratch.state.data());
      member.rows(count, [&](int i) {
        T *r = scratch.gates.at[i], *u = r + n, *reset = scratch.reset.at[i];
        const T *h = scratch.state[i], *from_h = scratch.sums.at[i];
        for_each<T>(n, [&](auto load, auto store) {
          const Vector<T> opened = sigmoid<T>(reset_after ? load(r) + load(from_h) : load(r));
          store(u, sigmoid<T>(reset_after ? load(u) + load(from_h + n) : load(u)));
          store(r, opened);
          if (reset_after)
            store(r + 2 * n, load(r + 2 * n) + opened * load(from_h + 2 * n));
          else
            store(reset + m, opened * load(h));
        });
        if (!reset_after) std::copy_n(scratch.before.at[i], m, reset);
      });
      if (!reset_after) second_product(const_cast<const T**>(scratch.reset.at.data()));
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        T *gates = scratch.gates.at[i], *u = gates + n, *h = scratch.before.at[i] + m;
        T* j = reset_after ? gates + 2 * n : scratch.sums.at[i];
        scan.mask(sequences[i], s, n, keep.data());
        for_each<T>(n, [&](auto load, auto store) {
          const Vector<T> squashed = tanh<T>(load(j)), update = load(u);
          store(j, squashed);
          store(h, update * load(h) + (1 - update) * squashed * load(keep.data()));
        });
        std::copy_n(h, n, outputs + token * n);
        if (!scan.save) return;
        std::copy_n(gates, 2 * n, saved_gates + token * 3 * n);
        std::copy_n(j, n, saved_gates + token * 3 * n + 2 * n);
        std::copy_n(reset_after ? scratch.sums.at[i] + 2 * n : scratch.reset.at[i] + m, n, inner + token * n);
      });
    }
    member.rows(rows, [&](int i) {
      std::copy_n(scratch.before.at[i] + m, n, row_of(last, sequences[i].row, n));
    });
  });
}

template <typename T>
void gru_backward(Arguments in) {
  const Scan<T> scan(in);
  const int m = scan.m, n = scan.n;
  const bool reset_after = in.number();
  in.skip(2);  // h0, weight_x
  const T* weight_h = in.tensor<T>();
  in.skip(reset_after ? 3 : 2);  // bias, bias_h, outputs
  const T *xh = in.tensor<T>(), *saved_gates = in.tensor<T>(), *inner = in.tensor<T>();
  const T *grad_outputs = in.tensor<T>(), *grad_last = in.tensor<T>();
  T* grad_h0 = in.tensor<T>();     // (B, n)
  T* grad_gates = in.tensor<T>();  // (T, B, 3n): of the sums of r, u and the candidate
  T* grad_inner = in.tensor<T>();  // (T, B, n): of the candidate's product with h; only with reset_after

  // Towards h: from the gates, and from the candidate, whose product with h r opens or closes.
  Packed<T> gates(2 * n, n), candidate(n, n);
  gates.put(weight_h, 2 * n, n, 0, 0);
  candidate.put(weight_h + static_cast<size_t>(2 * n) * n, n, n, 0, 0);
  struct Scratch {
    Rows<T> grad_h, through, decayed;
    std::vector<const T*> from;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, gates.padded()), Rows<T>(rows, gates.padded()), Rows<T>(rows, gates.padded()),
                   std::vector<const T*>(rows)};
  };
  const Teams teams(scan, in.threads, gates.bytes() + candidate.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<T> keep(n, T(1));
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(grad_last, sequences[i].row, n), n, scratch.grad_h.at[i]);
    });
    for (int s = rows ? sequences[0].length - 1 : -1; s >= 0; --s) {
      const int count = running(sequences, s);
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        const T *r = saved_gates + token * 3 * n, *u = r + n, *j = u + n, *h = xh + token * (m + n) + m;
        const T *grad_output = grad_outputs + token * n, *product = inner + token * n;
        T *grad_r = grad_gates + token * 3 * n, *grad_u = grad_r + n, *grad_j = grad_u + n;
        scan.mask(sequences[i], s, n, keep.data());
        for_each<T>(n, [&](auto load, auto store) {
          const Vector<T> dh = load(scratch.grad_h.at[i]) + load(grad_output), update = load(u), squashed = load(j);
          const Vector<T> kept = load(keep.data()), opened = load(r);
          const Vector<T> dj = dh * (1 - update) * kept * (1 - squashed * squashed);
          store(grad_j, dj);
          store(grad_u, dh * (load(h) - squashed * kept) * update * (1 - update));
          store(scratch.decayed.at[i], dh * update);
          if (reset_after) {
            store(grad_r, dj * load(product) * opened * (1 - opened));
            store(grad_inner + token * n, dj * opened);
          }
        });
        scratch.from[i] = reset_after ? grad_inner + token * n : grad_j;
      });
      member.product(scratch.from.data(), count, candidate, static_cast<const T* const*>(nullptr),
                     scratch.through.at.data());
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        const T *r = saved_gates + token * 3 * n, *h = xh + token * (m + n) + m;
        T *grad_r = grad_gates + token * 3 * n, *decayed = scratch.decayed.at[i];
        for_each<T>(n, [&](auto load, auto store) {
          const Vector<T> back = load(scratch.through.at[i]), opened = load(r);
          if (reset_after) {
            store(decayed, load(decayed) + back);
          } else {
            store(decayed, load(decayed) + back * opened);
            store(grad_r, back * load(h) * opened * (1 - opened));
          }
        });
        scratch.from[i] = grad_r;
      });
      member.product(scratch.from.data(), count, gates, const_cast<const T**>(scratch.decayed.at.data()),
                     scratch.grad_h.at.data());
    }
    member.rows(rows, [&](int i) {
      std::copy_n(scratch.grad_h.at[i], n, row_of(grad_h0, sequences[i].row, n));
    });
  });
}
}  // namespace rru::RRU_ISA
