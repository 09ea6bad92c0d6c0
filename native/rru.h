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
    put_outputs(packed, 0, g);
    return packed;
  }
  // Put the weights of `size` units from `first` on into a matrix, with the bias if they are the first.
  void put_outputs(Packed<T>& packed, int first, int size) const {
    packed.put_transposed(weight_c + first, n, size, 0, 0, g);
    packed.put_transposed(weight_o + first, p, size, 0, n, g);
    if (first == 0) packed.put_bias(bias_c, n, 0), packed.put_bias(bias_o, p, n);
    finish_packing_around_d(packed);
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

// The nonzeros of some units of d, in the rows of a step.
template <typename T>
class Nonzeros {
 public:
  Nonzeros(int rows, int units) : sparse_(rows, units), live_(rows), counts_(rows), all_(rows) {}

  void begin(int row) { all_[row] = 0; }
  // Count those of a row, and list them if there are fewer than `most`.
  void count(int row, int units, const T* d, double most) {
    int count = 0;
    for (int f = 0; f < units; ++f) count += d[f] != 0;
    counts_[row] = count, all_[row] += count;
    if (count >= most) return;
    sparse_.collect(row, d);
    live_[row] = sparse_[row];
  }
  // Return whether each of the first `rows` rows has fewer than `most`.
  bool fewer(int rows, double most) const { return *std::max_element(counts_.begin(), counts_.begin() + rows) < most; }
  const std::vector<SparseRow<T>>& rows() const { return live_; }
  // Return how many a row had at all steps since `begin`.
  int64_t all(int row) const { return all_[row]; }

 private:
  SparseRows<T> sparse_;
  std::vector<SparseRow<T>> live_;
  std::vector<int> counts_;
  std::vector<int64_t> all_;
};

// If all threads share the steps of few sequences and there is one ReLU layer, they divide the units, the features of d.
// Each thread computes its units of all sequences, and what these add to c and o. So d stays in the cache of the core that
// wrote it, and threads exchange less: the sums of squares for Normalize, their parts of c and o, and the state.
template <typename T>
struct RruForward : Rru<T> {
  using Base = Rru<T>;
  using Base::m, Base::n, Base::p, Base::g, Base::save;
  static constexpr bool backward = false;

  // Some units, with their weights.
  struct Part {
    int first, size;
    Packed<T> inner;     // Eq. 1
    Packed<T> outer;     // Eq. 4 and 6; the first part has the bias
    double most = 0;  // of nonzeros in a row of d for which the product skips its zeros; 0 if it must not
    Part(const Rru<T>& cell, int first, int size)
        : first(first), size(size), inner(cell.m + cell.n, size, cell.packs()), outer(size, cell.n + cell.p, cell.packs()) {}
  };

  T* last;                                  // (B, n)
  std::deque<Part> parts;                   // one, or one for each thread
  std::vector<Packed<T>> middle;            // Eq. 2
  mutable std::atomic<int64_t> nonzero{0};  // nonzeros of d, over all steps

  explicit RruForward(Arguments& in) : Rru<T>(in, backward), last(in.tensor<T>("last_h", {this->batch, n})) {
    constexpr int together = std::max(Simd<T>::lanes, Dropout::together);
    const int groups = round_up(g, together) / together, count = parts_among(in.threads);
    for (Share share{0, count}; share.index < count; ++share.index) {
      const int first = share.first(groups) * together, end = std::min(share.last(groups) * together, g);
      parts.emplace_back(*this, first, end - first);
    }
    for (int k = 0; k < this->middle_layers(); ++k) middle.emplace_back(g, g, this->packs());
  }

  struct Scratch {
    // Of the units of a part.
    struct Own {
      Rows<T> wide, both;      // d, and what it adds to c and o, side by side
      std::vector<T> squares;  // of each row: the sum for Normalize
      Nonzeros<T> nonzeros;
      Own(const RruForward& cell, const Part& part, int rows)
          : wide(rows, part.inner.padded()),
            both(rows, part.outer.padded()),
            squares(rows),
            nonzeros(rows, part.size) {}
    };
    Rows<T> xh, other, sum;
    std::deque<Own> own;
    Scratch(const RruForward& cell, int rows)
        : xh(rows, cell.m + cell.n), other(rows, cell.middle.empty() ? 0 : cell.parts[0].inner.padded()), sum(rows, cell.n + cell.p) {
      for (const Part& part : cell.parts) own.emplace_back(cell, part, rows);
    }
  };
  size_t weight_bytes() const { return sizeof(T) / (this->bfloat16 ? 2 : 1) * g * (size_t{0} + m + n + n + p); }
  int rows_together() const { return this->rows_beside(weight_bytes()); }
  bool divides_units() const { return parts.size() > 1; }

  void pack(Share share) {
    const int parts_and_layers = static_cast<int>(parts.size() + middle.size());
    for (int i = share.index; i < parts_and_layers; i += share.size) {
      const int k = i - static_cast<int>(parts.size());
      if (k < 0)
        pack_part(parts[i]);
      else
        pack_middle(k);
    }
  }
  void begin(Scratch& scratch, const Row& row) const {
    std::copy_n(row_of(this->h0, row.sequence, n), n, scratch.xh[row.index] + m);
    for (auto& own : scratch.own) own.nonzeros.begin(row.index);
  }
  void step(Worker<T>& worker, Scratch& scratch) const {
    worker.rows([&](const Row& row) { this->read_input(row, scratch.xh[row.index], this->xh); });
    const int number = divides_units() ? worker.member : 0;
    const Part& part = parts[number];
    auto& own = scratch.own[number];
    worker.product(scratch.xh, part.inner, own.wide);  // the sum in Eq. 1
    if (divides_units())
      worker.unit_rows([&](const Row& row) { own.squares[row.index] = square(own.wide[row.index], part.size); });
    worker.meet();
    const Rows<T>*j = &own.wide, *next = &scratch.other;
    auto dropout = [&](const Row& row) { dropout_row(row, worker, part, (*j)[row.index], own.nonzeros); };  // Eq. 3
    worker.unit_rows([&](const Row& row) {
      normalize_row(row, part, (*j)[row.index], scratch);
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
    if (own.nonzeros.fewer(worker.count(), part.most))  // Eq. 4 and 6
      worker.product(own.nonzeros.rows(), part.outer, own.both);
    else
      worker.product(*j, part.outer, own.both);
    worker.meet();
    worker.rows([&](const Row& row) { this->state_row(row, sum_of_parts(row, scratch), scratch.xh[row.index] + m); });
  }
  void end(Scratch& scratch, const Row& row) const {
    std::copy_n(scratch.xh[row.index] + m, n, row_of(last, row.sequence, n));
    for (auto& own : scratch.own) nonzero.fetch_add(own.nonzeros.all(row.index), std::memory_order_relaxed);
  }
  void finish(int /*threads*/) const {
    if (!save) return;
    double entries = 0;
    for (int b = 0; b < this->batch; ++b) entries += static_cast<double>(g) * this->length(b);
    bool skips = std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.most > 0; });
    skips = skips && (middle.empty() || is_finite(middle.back()));
    *this->density = skips ? static_cast<T>(static_cast<double>(nonzero) / std::max(1.0, entries)) : T(1);
  }

 private:
  // Return the number of parts: that of the threads in a team.
  int parts_among(int threads) const {
    if (this->middle_layers() || !this->packs()) return 1;
    const int members = Teams(*this, threads, weight_bytes()).members;
    return g >= members * Packed<T>::width ? members : 1;
  }

  void pack_part(Part& part) const {
    part.inner.put_transposed(row_of(this->weight_x, part.first, m), part.size, m, 0, 0);
    part.inner.put_transposed(row_of(this->weight_h, part.first, n), part.size, n, m, 0);
    part.inner.put_bias(this->bias_j + part.first, part.size, 0);
    this->finish_packing(part.inner);
    this->put_outputs(part.outer, part.first, part.size);
    if (part.outer.packed && !part.outer.halves && is_finite(part.outer)) part.most = this->max_sparse_row * part.size;
  }
  void pack_middle(int k) {
    middle[k].put_transposed(this->weight_k[k], g, g, 0, 0);
    middle[k].put_bias(this->bias_k[k], g, 0);
    this->finish_packing_around_d(middle[k]);
  }

  static T square(const T* j, int size) { return dot(j, j, size); }

  void normalize_row(const Row& row, const Part& part, T* j, const Scratch& scratch) const {  // Eq. 1
    if (this->normalize) {
      T sum = 0;
      if (divides_units())
        for (const auto& own : scratch.own) sum += own.squares[row.index];
      else
        sum = square(j, g);
      const T factor = 1 / std::sqrt(sum / g + T(1e-6));
      for (int f = 0; f < part.size; ++f) j[f] *= factor;
      if (save && part.first == 0) this->scale[row.token] = factor;
    }
    if (save) std::copy_n(j, part.size, row_of(this->pre, row.token, g) + part.first);
    for (int f = 0; f < part.size; ++f) j[f] = relu(j[f]);
  }

  void middle_row(const Row& row, int k, T* j) const {  // Eq. 2
    for (int f = 0; f < g; ++f) j[f] = relu(j[f]);
    if (save) std::copy_n(j, g, this->hidden_at(k, row.token));
  }

  void dropout_row(const Row& row, Worker<T>& worker, const Part& part, T* d, Nonzeros<T>& nonzeros) const {
    if (this->dropout.active()) {
      const T* mask = worker.mask(row, part.first, part.size);
      for (int f = 0; f < part.size; ++f) d[f] *= mask[f];
    }
    nonzeros.count(row.index, part.size, d, part.most);
  }

  // Add up what all units add to c and o.
  T* sum_of_parts(const Row& row, Scratch& scratch) const {
    if (!divides_units()) return scratch.own[0].both[row.index];
    T* sum = scratch.sum[row.index];
    const T *one = scratch.own[0].both[row.index], *two = scratch.own[1].both[row.index];
    for (int f = 0; f < n + p; ++f) sum[f] = one[f] + two[f];
    for (size_t i = 2; i < scratch.own.size(); ++i) {
      const T* more = scratch.own[i].both[row.index];
      for (int f = 0; f < n + p; ++f) sum[f] += more[f];
    }
    return sum;
  }
};
}  // namespace rru::RRU_ISA
