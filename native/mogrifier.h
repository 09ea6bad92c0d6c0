// The Mogrifier LSTM over time: input and state gate each other in rounds, then an LSTM step follows.
#pragma once
#include "lstm.h"

namespace rru::RRU_ISA {

// A round multiplies its target by a factor computed from its source. Even rounds gate x by h, odd rounds gate h by x.
template <typename T>
struct Round {
  int source, target, rank;
  bool of_state;                        // whether the target is h
  const T *weight_a, *weight_b, *bias;  // (rank, source), (target, rank), (target,); rank 0: weight_b (target, source)
  // With `save`: low-rank rows (T, B, rank), factors (T, B, target), and target times factor (T, B, target)
  T *narrow = nullptr, *factor = nullptr, *value = nullptr;

  Round(Arguments& in, int index, int m, int n, int rank)
      : source(index % 2 ? m : n), target(index % 2 ? n : m), rank(rank), of_state(index % 2) {
    weight_a = rank ? in.tensor<const T>("weight_a", {rank, source}) : nullptr;
    weight_b = in.tensor<const T>("weight_b", {target, narrow_size()});
    bias = in.tensor<const T>("round_bias", {target});
  }
  void read_saved(Arguments& in, int steps, int batch) {
    narrow = rank ? in.tensor<T>("narrow", {steps, batch, rank}) : nullptr;
    factor = in.tensor<T>("factor", {steps, batch, target}), value = in.tensor<T>("value", {steps, batch, target});
  }
  int narrow_size() const { return rank ? rank : source; }
};

template <typename T>
struct Mogrifier : LstmBase<T, true> {
  int rank;
  std::vector<Round<T>> rounds;
  T* plain = nullptr;  // (T, B, m + n), with `save`: [x, h] before the rounds; `xh` is after them

  Mogrifier(Arguments& in, bool backward) : LstmBase<T, true>(in, backward) {
    const int count = in.count("rounds");
    rank = in.count("rank");
    for (int k = 0; k < count; ++k) rounds.emplace_back(in, k, this->m, this->n, rank);
    this->read_results(in, backward);
    if (!this->save) return;
    plain = in.tensor<T>("plain", {this->steps, this->batch, this->m + this->n});
    for (Round<T>& round : rounds) round.read_saved(in, this->steps, this->batch);
  }
};

template <typename T>
struct MogrifierForward : Mogrifier<T> {
  using Base = Mogrifier<T>;
  using Base::m, Base::n, Base::rank, Base::rounds, Base::save;
  static constexpr bool backward = false;

  T *last_h, *last_c;  // (B, n); last_c holds c during the loop
  const Packed<T> weights;
  std::vector<Packed<T>> to_narrow, to_target;  // for each round; with rank 0 only to_target is used
  int widest_target = 0;

  explicit MogrifierForward(Arguments& in) : Mogrifier<T>(in, backward), weights(this->pack_weights()) {
    last_h = in.tensor<T>("last_h", {this->batch, n}), last_c = in.tensor<T>("last_c", {this->batch, n});
    for (const Round<T>& round : rounds) {
      if (rank)
        to_narrow.emplace_back(round.source, rank, this->packs()).put_transposed(round.weight_a, rank, round.source, 0, 0);
      Packed<T>& packed = to_target.emplace_back(round.narrow_size(), round.target, this->packs());
      packed.put_transposed(round.weight_b, round.target, round.narrow_size(), 0, 0);
      packed.put_bias(round.bias, round.target, 0);
      widest_target = std::max(widest_target, packed.padded());
    }
    for (auto* all : {&to_narrow, &to_target})
      for (Packed<T>& matrix : *all) this->finish_packing(matrix);
  }

  struct Scratch {
    Rows<T> xh, gates, narrow, factor;
    RowsElsewhere<T> h;  // in `xh`
    Scratch(const MogrifierForward& cell, int rows)
        : xh(rows, cell.m + cell.n),
          gates(rows, cell.weights.padded()),
          narrow(rows, cell.to_narrow.empty() ? 0 : cell.to_narrow[0].padded()),
          factor(rows, cell.widest_target),
          h(rows) {}
  };
  size_t weight_bytes() const { return weights.bytes(); }

  void begin(Scratch& scratch, const Row& row) const {
    scratch.h[row.index] = scratch.xh[row.index] + m;
    std::copy_n(row_of(this->h0, row.sequence, n), n, scratch.xh[row.index] + m);
    std::copy_n(row_of(this->c0, row.sequence, n), n, row_of(last_c, row.sequence, n));
  }
  void reset(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->reset_h, row.sequence, n), n, scratch.xh[row.index] + m);
    std::copy_n(row_of(this->reset_c, row.sequence, n), n, row_of(last_c, row.sequence, n));
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) { this->read_input(row, scratch.xh[row.index], this->plain); });
    for (size_t k = 0; k < rounds.size(); ++k) {
      const T* const* source = scratch.h;
      if (rounds[k].of_state) source = scratch.xh;  // each row starts with x
      if (rank) {
        worker.product(source, to_narrow[k], scratch.narrow);
        worker.product(scratch.narrow, to_target[k], scratch.factor);
      } else {
        worker.product(source, to_target[k], scratch.factor);
      }
      worker.rows([&](const Row& row) { round_row(row, rounds[k], scratch); });
    }
    worker.product(scratch.xh, weights, scratch.gates);
    worker.rows([&](const Row& row) {
      T* xh = scratch.xh[row.index];
      if (save) std::copy_n(xh, m + n, row_of(this->xh, row.token, m + n));
      T* c = row_of(last_c, row.sequence, n);
      this->forward_row(row, worker.mask(row), scratch.gates[row.index], c, xh + m);
    });
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.xh[row.index] + m, n, row_of(last_h, row.sequence, n));
  }

 private:
  // Compute the factor from its sum, and multiply the target by it.
  void round_row(const Row& row, const Round<T>& round, Scratch& scratch) const {
    T *factor = scratch.factor[row.index], *value = scratch.xh[row.index] + (round.of_state ? m : 0);
    for_each<T>(round.target, [&](auto load, auto store) {
      const Vector<T> gate = 2 * sigmoid<T>(load(factor));
      store(factor, gate), store(value, load(value) * gate);
    });
    if (!save) return;
    if (rank) std::copy_n(scratch.narrow[row.index], rank, row_of(round.narrow, row.token, rank));
    std::copy_n(factor, round.target, row_of(round.factor, row.token, round.target));
    std::copy_n(value, round.target, row_of(round.value, row.token, round.target));
  }
};

template <typename T>
struct MogrifierBackward : LstmBackwardBase<T, Mogrifier<T>> {
  using Base = LstmBackwardBase<T, Mogrifier<T>>;
  using Base::steps, Base::batch, Base::m, Base::n, Base::rank, Base::rounds, Base::to_h;

  struct RoundGradients {
    T *narrow, *sum;  // (T, B, rank), (T, B, target): gradients of the low-rank row and of the factor's sum
  };
  T* grad_x;  // (T, B, m)
  std::vector<RoundGradients> grad_rounds;
  Packed<T> to_x;                               // from the gates' sums
  std::vector<Packed<T>> to_narrow, to_source;  // for each round; with rank 0 only to_source is used

  explicit MogrifierBackward(Arguments& in)
      : Base(in), grad_x(in.tensor<T>("grad_x", {steps, batch, m})), to_x(4 * n, m) {
    to_x.put(this->weight_x, 4 * n, m, 0, 0);
    for (const Round<T>& round : rounds) {
      T* narrow = rank ? in.tensor<T>("grad_narrow", {steps, batch, rank}) : nullptr;
      grad_rounds.push_back({narrow, in.tensor<T>("grad_factor", {steps, batch, round.target})});
      if (rank) {
        to_narrow.emplace_back(round.target, rank).put(round.weight_b, round.target, rank, 0, 0);
        to_source.emplace_back(rank, round.source).put(round.weight_a, rank, round.source, 0, 0);
      } else {
        to_source.emplace_back(round.target, round.source).put(round.weight_b, round.target, round.source, 0, 0);
      }
    }
    this->finish_packing(to_x);
    for (auto* all : {&to_narrow, &to_source})
      for (Packed<T>& matrix : *all) this->finish_packing(matrix);
  }

  struct Scratch {
    Rows<T> grad_x, grad_h, narrow;
    RowsElsewhere<T> from;
    Scratch(const MogrifierBackward& cell, int rows)
        : grad_x(rows, cell.to_x.padded()),
          grad_h(rows, cell.to_h.padded()),
          narrow(rows, cell.to_narrow.empty() ? 0 : cell.to_narrow[0].padded()),
          from(rows) {}
  };
  size_t weight_bytes() const { return to_x.bytes() + to_h.bytes(); }

  void step(Worker<T>& worker, Scratch& scratch) const {
    this->gates_step(worker, scratch);
    worker.product(scratch.from, to_x, scratch.grad_x);
    worker.product(scratch.from, to_h, scratch.grad_h);
    for (int k = static_cast<int>(rounds.size()) - 1; k >= 0; --k) {
      const Rows<T>& source = rounds[k].of_state ? scratch.grad_x : scratch.grad_h;
      worker.rows([&](const Row& row) { round_row(row, k, scratch); });
      if (!rank) {
        worker.product(scratch.from, to_source[k], source, source);
        continue;
      }
      worker.product(scratch.from, to_narrow[k], scratch.narrow);
      worker.product(scratch.narrow, to_source[k], source, source);
      worker.rows([&](const Row& row) {
        std::copy_n(scratch.narrow[row.index], rank, row_of(grad_rounds[k].narrow, row.token, rank));
      });
    }
    worker.rows([&](const Row& row) { std::copy_n(scratch.grad_x[row.index], m, row_of(grad_x, row.token, m)); });
  }
 private:
  // Compute the gradients of the target before round k and of the factor's sum from that of the target after round k.
  void round_row(const Row& row, int k, Scratch& scratch) const {
    const Round<T>& round = rounds[k];
    const T* before = k >= 2 ? row_of(rounds[k - 2].value, row.token, round.target)  // by the previous such round
                             : row_of(this->plain, row.token, m + n) + (round.of_state ? m : 0);
    const T* factor = row_of(round.factor, row.token, round.target);
    T* target = (round.of_state ? scratch.grad_h : scratch.grad_x)[row.index];
    T* sum = row_of(grad_rounds[k].sum, row.token, round.target);
    for_each<T>(round.target, [&](auto load, auto store) {
      const Vector<T> gate = load(factor), after = load(target);
      store(sum, after * load(before) * gate * (1 - gate / 2));
      store(target, after * gate);
    });
    scratch.from[row.index] = sum;
  }
};
}  // namespace rru::RRU_ISA
