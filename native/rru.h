// The RRU over time: Eq. 1-6. Their gradients are in rru_backward.h.
#pragma once
#include "pointwise.h"
#include "scan.h"

namespace rru::RRU_ISA {

// Below these shares of entries that are not zero, looking at those alone is faster (docs/performance.md): in a sparse row
// times a matrix, and where only some entries of a product are wanted.
constexpr double kSparseRow = 0.35, kSparseResult = 0.2;

template <typename T>
struct RruScan : Scan<T> {
  int p, g, relu_layers;
  bool normalize, activate;
  const T* h0;                                     // (B, n)
  const T *weight_x, *weight_h, *bias_j;           // (g, m), (g, n), (g,)
  std::vector<const T*> weight_k, bias_k;          // (g, g), (g,)
  const T *weight_c, *bias_c, *weight_o, *bias_o;  // (n, g), (n,), (p, g), (p,)
  std::vector<T> kept, z;                          // sigmoid(10 S) and Z, (n,) each
  T* outputs;                                      // (T, B, p)
  // What the forward pass keeps for the backward pass
  T* xh;            // (T, B, m + n): each step's input and the state before it
  T* pre;           // (T, B, g): Eq. 1 before ReLU
  T* scale;         // (T, B): what Normalize multiplied by
  T* hidden;        // (relu_layers - 1, T, B, g): each Eq. 2
  T* candidate;     // (T, B, n): c before its ReLU; only with `activate`
  T* density;       // (1,): the share of d that was not zero; 1 where its zeros must not be skipped

  explicit RruScan(Arguments& in) : Scan<T>(in) {
    p = in.number(), g = in.number(), relu_layers = in.number(), normalize = in.number(), activate = in.number();
    const bool scaled = in.number(), vector_z = in.number();
    h0 = in.tensor<T>();
    weight_x = in.tensor<T>(), weight_h = in.tensor<T>(), bias_j = in.tensor<T>();
    for (int k = 1; k < relu_layers; ++k) weight_k.push_back(in.tensor<T>()), bias_k.push_back(in.tensor<T>());
    weight_c = in.tensor<T>(), bias_c = in.tensor<T>(), weight_o = in.tensor<T>(), bias_o = in.tensor<T>();
    kept.assign(this->n, T(1));
    if (scaled) {
      const T* s = in.tensor<T>();
      for_each<T>(this->n, [&](auto load, auto store) { store(kept.data(), sigmoid<T>(10 * load(s))); });
    }
    const T* given_z = in.tensor<T>();
    z = vector_z ? std::vector<T>(given_z, given_z + this->n) : std::vector<T>(this->n, *given_z);
    outputs = in.tensor<T>();
    xh = in.tensor<T>(), pre = in.tensor<T>(), scale = in.tensor<T>(), hidden = in.tensor<T>();
    candidate = in.tensor<T>(), density = in.tensor<T>();
  }

  T* hidden_at(int k, size_t token) const {
    return hidden + (static_cast<size_t>(k) * this->steps * this->batch + token) * g;
  }
};

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

// The weights of Eq. 4 and 6 side by side, g x (n + p).
template <typename T>
Packed<T> pack_outputs(const RruScan<T>& scan) {
  Packed<T> packed(scan.g, scan.n + scan.p, scan.packs());
  packed.put_transposed(scan.weight_c, scan.n, scan.g, 0, 0);
  packed.put_transposed(scan.weight_o, scan.p, scan.g, 0, scan.n);
  return packed;
}

// Whether zeros may be skipped in products with these values: zero times infinity is not zero.
template <typename T>
bool finite(const T* values, size_t size) {
  bool all = true;
  for (size_t i = 0; i < size; ++i) all &= values[i] - values[i] == 0;
  return all;
}

template <typename T>
void rru_forward(Arguments in) {
  T* last = in.tensor<T>();  // (B, n)
  const RruScan<T> scan(in);

  const int m = scan.m, n = scan.n, p = scan.p, g = scan.g;
  Packed<T> inner(m + n, g, scan.packs());
  inner.put_transposed(scan.weight_x, g, m, 0, 0);
  inner.put_transposed(scan.weight_h, g, n, m, 0);
  std::vector<Packed<T>> middle;
  for (const T* weight : scan.weight_k) middle.emplace_back(g, g, scan.packs()).put_transposed(weight, g, g, 0, 0);
  const Packed<T> outer = pack_outputs(scan);
  const std::vector<T> bias_inner = padded<T>(inner.padded(), {{scan.bias_j, g}});
  const std::vector<T> bias_outer = padded<T>(outer.padded(), {{scan.bias_c, n}, {scan.bias_o, p}});
  std::vector<std::vector<T>> bias_middle;
  for (const T* bias : scan.bias_k) bias_middle.push_back(padded<T>(inner.padded(), {{bias, g}}));

  struct Scratch {
    Rows<T> before, wide, other, both;
    std::vector<const T*> input, start_inner, start_outer, start_middle;
    SparseRows<T> collected;
    std::vector<SparseRow<T>> live;
    std::vector<int> nonzero;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, m + n),
                   Rows<T>(rows, inner.padded()),
                   Rows<T>(rows, inner.padded()),
                   Rows<T>(rows, outer.padded()),
                   std::vector<const T*>(rows),
                   std::vector<const T*>(rows, bias_inner.data()),
                   std::vector<const T*>(rows, bias_outer.data()),
                   std::vector<const T*>(rows),
                   SparseRows<T>(rows, g),
                   std::vector<SparseRow<T>>(rows),
                   std::vector<int>(rows)};
  };
  const bool skips = outer.packed && finite(outer.data.get(), outer.size()) &&
                     (middle.empty() || finite(middle.back().data.get(), middle.back().size()));
  std::atomic<int64_t> alive{0}, seen{0};
  const Teams teams(scan, in.threads, inner.bytes() + outer.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    std::vector<T> mask(g);
    // The row [x, h] of a sequence's s-th step: where the backward pass will look for it, or in scratch.
    auto row_at = [&](int i, int s) {
      return scan.save ? scan.xh + scan.token(sequences[i], s) * (m + n) : scratch.before.at[i];
    };
    member.rows(running(sequences, 0), [&](int i) {
      std::copy_n(row_of(scan.h0, sequences[i].row, n), n, row_at(i, 0) + m);
    });
    for (int s = 0, count; (count = running(sequences, s)) > 0; ++s) {
      member.rows(count, [&](int i) {
        scratch.input[i] = row_at(i, s);
        std::copy_n(scan.x + scan.token(sequences[i], s) * m, m, row_at(i, s));
      });
      std::vector<T*>*from = &scratch.wide.at, *to = &scratch.other.at;
      member.product(scratch.input.data(), count, inner, scratch.start_inner.data(), from->data());  // the sum in Eq. 1
      member.rows(count, [&](int i) {
        T* j = (*from)[i];
        const size_t token = scan.token(sequences[i], s);
        if (scan.normalize) {
          const T factor = 1 / std::sqrt(dot(j, j, g) / g + T(1e-6));
          for (int f = 0; f < g; ++f) j[f] *= factor;
          if (scan.save) scan.scale[token] = factor;
        }
        if (scan.save) std::copy_n(j, g, scan.pre + token * g);
        for (int f = 0; f < g; ++f) j[f] = relu(j[f]);  // Eq. 1
        if (!middle.empty()) scratch.start_middle[i] = bias_middle[0].data();
      });
      for (size_t k = 0; k < middle.size(); ++k) {  // Eq. 2
        member.product(const_cast<const T**>(from->data()), count, middle[k], scratch.start_middle.data(), to->data());
        std::swap(from, to);
        member.rows(count, [&](int i) {
          T* j = (*from)[i];
          for (int f = 0; f < g; ++f) j[f] = relu(j[f]);
          if (scan.save) std::copy_n(j, g, scan.hidden_at(static_cast<int>(k), scan.token(sequences[i], s)));
          if (k + 1 < middle.size()) scratch.start_middle[i] = bias_middle[k + 1].data();
        });
      }
      member.rows(count, [&](int i) {  // Eq. 3
        T* d = (*from)[i];
        if (scan.dropout.active()) {
          scan.mask(sequences[i], s, g, mask.data());
          for (int f = 0; f < g; ++f) d[f] *= mask[f];
        }
        int nonzero = 0;
        for (int f = 0; f < g; ++f) nonzero += d[f] != 0;
        scratch.nonzero[i] = nonzero;
        if (!skips || nonzero >= kSparseRow * g) return;
        scratch.collected.collect(i, d);
        scratch.live[i] = scratch.collected[i];
      });
      const int most = *std::max_element(scratch.nonzero.begin(), scratch.nonzero.begin() + count);
      if (skips && most < kSparseRow * g)  // Eq. 4 and 6
        member.product(scratch.live.data(), count, outer, scratch.start_outer.data(), scratch.both.at.data());
      else
        member.product(const_cast<const T**>(from->data()), count, outer, scratch.start_outer.data(),
                       scratch.both.at.data());
      member.rows(count, [&](int i) {
        const Sequence& sequence = sequences[i];
        const size_t token = scan.token(sequence, s);
        const T* h = scratch.input[i] + m;
        T* next = s + 1 == sequence.length ? row_of(last, sequence.row, n) : row_at(i, s + 1) + m;
        T *c = scratch.both.at[i], *o = c + n;
        if (scan.activate) {
          if (scan.save) std::copy_n(c, n, scan.candidate + token * n);
          for (int f = 0; f < n + p; ++f) c[f] = relu(c[f]);
        }
        for (int f = 0; f < n; ++f) next[f] = scan.kept[f] * h[f] + scan.z[f] * c[f];  // Eq. 5
        std::copy_n(o, p, scan.outputs + token * p);
        alive.fetch_add(scratch.nonzero[i], std::memory_order_relaxed);
        seen.fetch_add(g, std::memory_order_relaxed);
      });
    }
  });
  if (scan.save) *scan.density = skips ? static_cast<T>(static_cast<double>(alive) / std::max<int64_t>(1, seen)) : T(1);
}
}  // namespace rru::RRU_ISA
