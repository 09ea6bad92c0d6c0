// The Mogrifier LSTM over time: rounds in which input and state gate each other, then the step of an LSTM.
#pragma once
#include "lstm.h"

namespace rru::RRU_ISA {

// A round: from a source (the state in even rounds, the input in odd ones) to a factor for its target, the other one.
template <typename T>
struct Round {
  int source, target, rank;
  const T *weight_a, *weight_b, *bias;  // (rank, source), (target, rank), (target,); rank 0: weight_b is (target, source)

  Round(Arguments& in, int index, int m, int n, int rank)
      : source(index % 2 ? m : n), target(index % 2 ? n : m), rank(rank) {
    weight_a = rank ? in.tensor<T>() : nullptr;
    weight_b = in.tensor<T>(), bias = in.tensor<T>();
  }
  int narrow() const { return rank ? rank : source; }
};

// What the forward pass keeps of a round: narrow (T, B, rank), factor (T, B, target), the target times it (T, B, target).
template <typename T>
struct RoundKept {
  T *narrow, *factor, *value;
  RoundKept(Arguments& in, int rank) : narrow(rank ? in.tensor<T>() : nullptr) {
    factor = in.tensor<T>(), value = in.tensor<T>();
  }
};

template <typename T>
struct MogrifierScan : Scan<T> {
  int rank;
  const T *h0, *c0, *weight_x, *weight_h, *bias;
  std::vector<Round<T>> rounds;

  explicit MogrifierScan(Arguments& in) : Scan<T>(in) {
    const int count = in.number();
    rank = in.number();
    h0 = in.tensor<T>(), c0 = in.tensor<T>();
    weight_x = in.tensor<T>(), weight_h = in.tensor<T>(), bias = in.tensor<T>();
    for (int i = 0; i < count; ++i) rounds.emplace_back(in, i, this->m, this->n, rank);
  }
};

template <typename T>
void mogrifier_forward(Arguments in) {
  T *last_h = in.tensor<T>(), *last_c = in.tensor<T>();
  const MogrifierScan<T> scan(in);
  const int m = scan.m, n = scan.n, rank = scan.rank;
  const LstmStep<T> lstm{true};
  T* outputs = in.tensor<T>();
  T *plain = in.tensor<T>(), *xh = in.tensor<T>();  // (T, B, m + n) before and after the rounds
  T *saved_gates = in.tensor<T>(), *cells = in.tensor<T>();
  std::vector<RoundKept<T>> kept;
  for (size_t i = 0; i < scan.rounds.size(); ++i) kept.emplace_back(in, rank);

  Packed<T> weights(m + n, 4 * n, scan.packs());
  weights.put_transposed(scan.weight_x, 4 * n, m, 0, 0);
  weights.put_transposed(scan.weight_h, 4 * n, n, m, 0);
  const std::vector<T> start_row = padded<T>(weights.padded(), {{scan.bias, 4 * n}});
  std::vector<Packed<T>> into, onto;
  std::vector<std::vector<T>> start_rounds;
  int widest = 0, widest_narrow = 0;
  for (const Round<T>& round : scan.rounds) {
    if (rank) {
      into.emplace_back(round.source, rank, scan.packs()).put_transposed(round.weight_a, rank, round.source, 0, 0);
      widest_narrow = into.back().padded();
    }
    onto.emplace_back(round.narrow(), round.target, scan.packs())
        .put_transposed(round.weight_b, round.target, round.narrow(), 0, 0);
    start_rounds.push_back(padded<T>(onto.back().padded(), {{round.bias, round.target}}));
    widest = std::max(widest, onto.back().padded());
  }
  struct Scratch {
    Rows<T> row, gates, narrow, factor;
    std::vector<const T*> start, from, start_round;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, m + n),
                   Rows<T>(rows, weights.padded()),
                   Rows<T>(rows, widest_narrow),
                   Rows<T>(rows, widest),
                   std::vector<const T*>(rows, start_row.data()),
                   std::vector<const T*>(rows),
                   std::vector<const T*>(rows)};
  };
  const Teams teams(scan, in.threads, weights.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<T> keep(n, T(1));
    std::vector<T*>& row = scratch.row.at;
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(scan.h0, sequences[i].row, n), n, row[i] + m);
      std::copy_n(row_of(scan.c0, sequences[i].row, n), n, row_of(last_c, sequences[i].row, n));
    });
    for (int s = 0, count; (count = running(sequences, s)) > 0; ++s) {
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        std::copy_n(scan.x + token * m, m, row[i]);
        if (scan.save) std::copy_n(row[i], m + n, plain + token * (m + n));
      });
      for (size_t k = 0; k < scan.rounds.size(); ++k) {
        const Round<T>& round = scan.rounds[k];
        const int source = k % 2 ? 0 : m, target = k % 2 ? m : 0;
        member.rows(count, [&](int i) {
          scratch.from[i] = row[i] + source, scratch.start_round[i] = start_rounds[k].data();
        });
        if (rank)
          member.product(scratch.from.data(), count, into[k], static_cast<const T* const*>(nullptr),
                         scratch.narrow.at.data());
        const T* const* from = rank ? const_cast<const T**>(scratch.narrow.at.data()) : scratch.from.data();
        member.product(from, count, onto[k], scratch.start_round.data(), scratch.factor.at.data());
        member.rows(count, [&](int i) {
          const size_t token = scan.token(sequences[i], s);
          T *factor = scratch.factor.at[i], *value = row[i] + target;
          for_each<T>(round.target, [&](auto load, auto store) {
            const Vector<T> gate = 2 * sigmoid<T>(load(factor));
            store(factor, gate), store(value, load(value) * gate);
          });
          if (!scan.save) return;
          if (rank) std::copy_n(scratch.narrow.at[i], rank, kept[k].narrow + token * rank);
          std::copy_n(factor, round.target, kept[k].factor + token * round.target);
          std::copy_n(value, round.target, kept[k].value + token * round.target);
        });
      }
      member.product(const_cast<const T**>(row.data()), count, weights, scratch.start.data(), scratch.gates.at.data());
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        T *c = row_of(last_c, sequences[i].row, n), *h = row[i] + m, *gates = scratch.gates.at[i];
        if (scan.save) std::copy_n(row[i], m + n, xh + token * (m + n));
        scan.mask(sequences[i], s, n, keep.data());
        lstm.forward(n, gates, keep.data(), c, c, h);
        std::copy_n(h, n, outputs + token * n);
        if (!scan.save) return;
        std::copy_n(gates, 4 * n, saved_gates + token * 4 * n);
        std::copy_n(c, n, cells + token * n);
      });
    }
    member.rows(rows, [&](int i) { std::copy_n(row[i] + m, n, row_of(last_h, sequences[i].row, n)); });
  });
}

template <typename T>
void mogrifier_backward(Arguments in) {
  const MogrifierScan<T> scan(in);
  const int m = scan.m, n = scan.n, rank = scan.rank;
  in.skip();  // outputs
  const T* plain = in.tensor<T>();
  in.skip();  // xh
  const T *saved_gates = in.tensor<T>(), *cells = in.tensor<T>();
  std::vector<RoundKept<T>> kept;
  for (size_t i = 0; i < scan.rounds.size(); ++i) kept.emplace_back(in, rank);
  const T *grad_outputs = in.tensor<T>(), *grad_last_h = in.tensor<T>(), *grad_last_c = in.tensor<T>();
  T *grad_h0 = in.tensor<T>(), *grad_c0 = in.tensor<T>();    // (B, n)
  T *grad_x = in.tensor<T>(), *grad_gates = in.tensor<T>();  // (T, B, m), (T, B, 4n)
  const LstmTape<T> tape{scan, {true}, scan.c0, saved_gates, cells, grad_outputs, grad_c0, grad_gates};
  struct Gradients {
    T *narrow, *sum;  // (T, B, rank), (T, B, target): of the narrow row, and of what the sigmoid takes
  };
  std::vector<Gradients> grads;
  for (size_t i = 0; i < scan.rounds.size(); ++i) {
    T* narrow = rank ? in.tensor<T>() : nullptr;
    grads.push_back({narrow, in.tensor<T>()});
  }

  Packed<T> towards_x(4 * n, m), towards_h(4 * n, n);
  towards_x.put(scan.weight_x, 4 * n, m, 0, 0);
  towards_h.put(scan.weight_h, 4 * n, n, 0, 0);
  std::vector<Packed<T>> into, onto;
  int widest_narrow = 0;
  for (const Round<T>& round : scan.rounds) {
    onto.emplace_back(round.target, round.narrow()).put(round.weight_b, round.target, round.narrow(), 0, 0);
    if (!rank) continue;
    into.emplace_back(rank, round.source).put(round.weight_a, rank, round.source, 0, 0);
    widest_narrow = onto.back().padded();
  }
  struct Scratch {
    Rows<T> dx, dh, narrow;
    std::vector<const T*> from;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, towards_x.padded()), Rows<T>(rows, towards_h.padded()), Rows<T>(rows, widest_narrow),
                   std::vector<const T*>(rows)};
  };
  const Teams teams(scan, in.threads, towards_x.bytes() + towards_h.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    const T* const* nothing = nullptr;
    std::vector<T> keep(n, T(1));
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(grad_last_h, sequences[i].row, n), n, scratch.dh.at[i]);
      std::copy_n(row_of(grad_last_c, sequences[i].row, n), n, row_of(grad_c0, sequences[i].row, n));
    });
    for (int s = rows ? sequences[0].length - 1 : -1; s >= 0; --s) {
      const int count = running(sequences, s);
      member.rows(count, [&](int i) {
        scratch.from[i] = tape.backward(sequences[i], s, scratch.dh.at[i], keep.data());
      });
      member.product(scratch.from.data(), count, towards_x, nothing, scratch.dx.at.data());
      member.product(scratch.from.data(), count, towards_h, nothing, scratch.dh.at.data());
      for (int k = static_cast<int>(scan.rounds.size()) - 1; k >= 0; --k) {
        const Round<T>& round = scan.rounds[k];
        Rows<T>&target = k % 2 ? scratch.dh : scratch.dx, &source = k % 2 ? scratch.dx : scratch.dh;
        member.rows(count, [&](int i) {
          const size_t token = scan.token(sequences[i], s);
          // The target before this round: what the last round with the same target left, or what came in.
          const T* before = k >= 2 ? kept[k - 2].value + token * round.target : plain + token * (m + n) + (k % 2 ? m : 0);
          const T* factor = kept[k].factor + token * round.target;
          T *grad = target.at[i], *sum = grads[k].sum + token * round.target;
          for_each<T>(round.target, [&](auto load, auto store) {
            const Vector<T> gate = load(factor), after = load(grad);
            store(sum, after * load(before) * gate * (1 - gate / 2));
            store(grad, after * gate);
          });
          scratch.from[i] = sum;
        });
        if (rank) {
          member.product(scratch.from.data(), count, onto[k], nothing, scratch.narrow.at.data());
          member.rows(count, [&](int i) {
            scratch.from[i] = scratch.narrow.at[i];
            std::copy_n(scratch.narrow.at[i], rank, grads[k].narrow + scan.token(sequences[i], s) * rank);
          });
        }
        member.product(scratch.from.data(), count, rank ? into[k] : onto[k], const_cast<const T**>(source.at.data()),
                       source.at.data());
      }
      member.rows(count, [&](int i) { std::copy_n(scratch.dx.at[i], m, grad_x + scan.token(sequences[i], s) * m); });
    }
    member.rows(rows, [&](int i) { std::copy_n(scratch.dh.at[i], n, row_of(grad_h0, sequences[i].row, n)); });
  });
}
}  // namespace rru::RRU_ISA
