// The RRU over time: Eq. 1-6 forward, and their gradients.
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
inline T square_sum(const T* row, int size) {
  constexpr int lanes = Simd<T>::lanes;
  Vector<T> sums[2] = {};
  int i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    const Vector<T> a = load(row + i), b = load(row + i + lanes);
    sums[0] += a * a, sums[1] += b * b;
  }
  T total = sum<T>(sums[0] + sums[1]);
  for (; i < size; ++i) total += row[i] * row[i];
  return total;
}

template <typename T>
inline T dot(const T* one, const T* two, int size) {
  constexpr int lanes = Simd<T>::lanes;
  Vector<T> sums[2] = {};
  int i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sums[0] += load(one + i) * load(two + i);
    sums[1] += load(one + i + lanes) * load(two + i + lanes);
  }
  T total = sum<T>(sums[0] + sums[1]);
  for (; i < size; ++i) total += one[i] * two[i];
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
          const T factor = 1 / std::sqrt(square_sum(j, g) / g + T(1e-6));
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

// The backward pass. Where a ReLU was silent or dropout struck there is no gradient, so that what Eq. 4 and 6 pass back to d
// has as many zeros as d itself.
template <typename T>
void rru_backward(Arguments in) {
  const RruScan<T> scan(in);
  const T* grad_outputs = in.tensor<T>();  // (T, B, p)
  const T* grad_last = in.tensor<T>();     // (B, n)
  T* grad_h0 = in.tensor<T>();             // (B, n)
  T* grad_pre = in.tensor<T>();            // (T, B, g): of the sum in Eq. 1
  T* grad_hidden = in.tensor<T>();         // (relu_layers - 1, T, B, g): of the sum in Eq. 2
  T* grad_both = in.tensor<T>();           // (T, B, n + p): of h_t, through c's ReLU if it has one, and of o_t
  T* features = in.tensor<T>();            // (T, B, g): d again; null where the gradients below are wanted instead
  T* grad_c = in.tensor<T>();              // (n, g): of the weights of Eq. 4, before Z
  T* grad_o = in.tensor<T>();              // (p, g): of the weights of Eq. 6
  T* grad_middle = in.tensor<T>();         // (g, g): of the weights of the last Eq. 2, if there is one
  T* grad_kept = in.tensor<T>();           // (threads, n): parts of the gradient of sigmoid(10 S)

  const int m = scan.m, n = scan.n, p = scan.p, g = scan.g, layers = scan.relu_layers - 1;
  const bool sparse = !features, sparse_result = sparse && *scan.density < kSparseResult;
  const bool sparse_row = sparse && *scan.density < kSparseRow;
  const size_t tokens = static_cast<size_t>(scan.steps) * scan.batch;
  Packed<T> inner(g, n);  // towards h
  inner.put(scan.weight_h, g, n, 0, 0);
  std::vector<Packed<T>> middle;
  for (const T* weight : scan.weight_k) middle.emplace_back(g, g).put(weight, g, g, 0, 0);
  Packed<T> outer = sparse_result ? pack_outputs(scan) : Packed<T>(n + p, g);  // towards d
  if (!sparse_result) outer.put(scan.weight_c, n, g, 0, 0), outer.put(scan.weight_o, p, g, n, 0);
  const int width = round_up(g, Packed<T>::width), width_both = round_up(n + p, Packed<T>::width);
  SparseRows<T> live(sparse ? tokens : 0, g);                       // d
  std::unique_ptr<T[]> grads(sparse && layers ? new T[tokens * g] : nullptr);  // where d lives, that of its last Eq. 2

  std::fill_n(grad_kept, static_cast<size_t>(in.threads) * n, T(0));
  struct Scratch {
    Rows<T> grad_h, decayed, both, grad_d, other, found;
    std::vector<const T*> from;
    std::vector<SparseRow<T>> at;
  };
  auto make = [&](int rows) {
    return Scratch{Rows<T>(rows, inner.padded()),
                   Rows<T>(rows, inner.padded()),
                   Rows<T>(rows, width_both),
                   Rows<T>(rows, width),
                   Rows<T>(rows, width),
                   Rows<T>(rows, g),
                   std::vector<const T*>(rows),
                   std::vector<SparseRow<T>>(rows)};
  };
  // What a gradient of d is multiplied by on its way to the last ReLU's argument, where d lives.
  const T through = scan.dropout.active() ? static_cast<T>(1 / (1 - scan.dropout.rate)) : T(1);
  const Teams teams(scan, in.threads, inner.bytes() + outer.bytes());
  teams.run(make, [&](Member& member, const std::vector<Sequence>& sequences, Scratch& scratch) {
    const int rows = static_cast<int>(sequences.size());
    std::vector<T> mask(g, T(1)), row(g);
    T* kept_sum = row_of(grad_kept, member.thread, n);
    member.rows(rows, [&](int i) {
      std::copy_n(row_of(grad_last, sequences[i].row, n), n, scratch.grad_h.at[i]);
    });
    for (int s = rows ? sequences[0].length - 1 : -1; s >= 0; --s) {
      const int count = running(sequences, s);
      member.rows(count, [&](int i) {
        const size_t token = scan.token(sequences[i], s);
        const T *h = scan.xh + token * (m + n) + m, *dh = scratch.grad_h.at[i];
        T *e = grad_both + token * (n + p), *dc = scratch.both.at[i], *decayed = scratch.decayed.at[i];
        std::copy_n(dh, n, e);  // Eq. 5 and 6
        std::copy_n(grad_outputs + token * p, p, e + n);
        if (scan.activate) {
          const T *c = scan.candidate + token * n, *o = scan.outputs + token * p;
          for (int f = 0; f < n; ++f) e[f] = c[f] <= 0 ? 0 : e[f];
          for (int f = 0; f < p; ++f) e[n + f] = o[f] <= 0 ? 0 : e[n + f];
        }
        for (int f = 0; f < n; ++f) {
          dc[f] = scan.z[f] * e[f];
          kept_sum[f] += dh[f] * h[f];
          decayed[f] = scan.kept[f] * dh[f];
        }
        std::copy_n(e + n, p, dc + n);

        const T* j = layers ? scan.hidden_at(layers - 1, token) : scan.pre + token * g;
        scan.mask(sequences[i], s, g, mask.data());
        T* d = sparse ? row.data() : features + token * g;
        for (int f = 0; f < g; ++f) d[f] = relu(j[f]) * mask[f];  // Eq. 3 again
        if (sparse) {
          live.collect(token, d);
          scratch.at[i] = live[token];
        } else {
          for (int f = 0; f < g; ++f) scratch.other.at[i][f] = d[f] != 0 ? mask[f] : T(0);
        }
      });
      const T** both = const_cast<const T**>(scratch.both.at.data());
      const T* const* nothing = nullptr;
      if (sparse_result)
        member.product_at(both, count, outer, scratch.at.data(), scratch.found.at.data());
      else
        member.product(both, count, outer, nothing, scratch.grad_d.at.data());
      std::vector<T*>*grad = &scratch.grad_d.at, *spare = &scratch.other.at;
      member.rows(count, [&](int i) {  // Eq. 3, and the ReLU before it
        T* dj = scratch.grad_d.at[i];
        if (!sparse) {
          for (int f = 0; f < g; ++f) dj[f] *= scratch.other.at[i][f];
          return;
        }
        const size_t token = scan.token(sequences[i], s);
        const SparseRow<T> at = live[token];
        T* found = layers ? grads.get() + token * g : scratch.found.at[i];
        if (sparse_result)
          for (int k = 0; k < at.count; ++k) found[k] = scratch.found.at[i][k] * through;
        else
          for (int k = 0; k < at.count; ++k) found[k] = dj[at.index[k]] * through;
        std::fill_n(dj, g, T(0));
        for (int k = 0; k < at.count; ++k) dj[at.index[k]] = found[k];
        scratch.at[i] = {at.index, found, at.count};
      });
      for (int k = layers - 1; k >= 0; --k) {  // Eq. 2, the ReLU after which is done already
        member.rows(count, [&](int i) {
          const size_t token = scan.token(sequences[i], s);
          T* target = grad_hidden + (static_cast<size_t>(k) * tokens + token) * g;
          std::copy_n((*grad)[i], g, target);
          scratch.from[i] = target;
        });
        if (sparse_row && k == layers - 1)
          member.product(scratch.at.data(), count, middle[k], nothing, spare->data());
        else
          member.product(scratch.from.data(), count, middle[k], nothing, spare->data());
        std::swap(grad, spare);
        member.rows(count, [&](int i) {
          const size_t token = scan.token(sequences[i], s);
          const T* j = k == 0 ? scan.pre + token * g : scan.hidden_at(k - 1, token);
          for (int f = 0; f < g; ++f) (*grad)[i][f] = j[f] <= 0 ? 0 : (*grad)[i][f];
        });
      }
      member.rows(count, [&](int i) {  // Normalize of Eq. 1
        const size_t token = scan.token(sequences[i], s);
        const T *dj = (*grad)[i], *j = scan.pre + token * g;
        T* da = grad_pre + token * g;
        if (scan.normalize) {
          const T factor = scan.scale[token], mean = dot(dj, j, g) / g;
          for (int f = 0; f < g; ++f) da[f] = factor * (dj[f] - j[f] * mean);
        } else {
          std::copy_n(dj, g, da);
        }
        scratch.from[i] = da;
      });
      member.product(scratch.from.data(), count, inner, const_cast<const T**>(scratch.decayed.at.data()),
                     scratch.grad_h.at.data());
    }
    member.rows(rows, [&](int i) {
      std::copy_n(scratch.grad_h.at[i], n, row_of(grad_h0, sequences[i].row, n));
    });
  });
  if (!sparse) return;
  auto both_at = [&](int t, int column, int size, T* target) {
    std::copy_n(grad_both + static_cast<size_t>(t) * (n + p) + column, size, target);
  };
  auto hidden_grad_at = [&](int t) {
    return SparseRow<T>{live[t].index, grads.get() + static_cast<size_t>(t) * g, live[t].count};
  };
  auto hidden_before_at = [&](int t, int column, int size, T* target) {
    const T* j = (layers > 1 ? scan.hidden_at(layers - 2, t) : scan.pre + static_cast<size_t>(t) * g) + column;
    for (int f = 0; f < size; ++f) target[f] = relu(j[f]);
  };
  auto put_outer = [&](int first, int count, int column, int size, const T* sums, int width) {
    for (int j = 0; j < size; ++j) {
      T* row = column + j < n ? row_of(grad_c, column + j, g) : row_of(grad_o, column + j - n, g);
      for (int f = 0; f < count; ++f) row[first + f] = sums[f * width + j];
    }
  };
  auto put_middle = [&](int first, int count, int column, int size, const T* sums, int width) {
    for (int f = 0; f < count; ++f) std::copy_n(sums + f * width, size, row_of(grad_middle, first + f, g) + column);
  };
  auto gradients = [&](int thread) {
    const Share share{thread, in.threads};
    const int all = static_cast<int>(tokens);
    sparse_gradient<T>([&](int t) { return live[t]; }, all, g, both_at, n + p, put_outer, share);
    if (layers) sparse_gradient<T>(hidden_grad_at, all, g, hidden_before_at, g, put_middle, share);
  };
  in_parallel(in.threads, gradients, [] {});
}
}  // namespace rru::RRU_ISA
