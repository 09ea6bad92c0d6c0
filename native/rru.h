// The RRU over time: Eq. 1-6 forward, and their gradients.
#pragma once
#include "scan.h"

namespace rru::RRU_ISA {

// Below these shares of entries that are not zero, looking at those alone is faster (docs/performance.md).
constexpr double kSparseForward = 0.35, kSparseBackward = 0.17;

template <typename T>
struct RruScan : Scan<T> {
  int p, g, relu_layers;
  bool normalize, activate;
  const T* h0;                                     // (B, n)
  const T *weight_x, *weight_h, *bias_j;           // (g, m), (g, n), (g,)
  std::vector<const T*> weight_k, bias_k;          // (g, g), (g,)
  const T *weight_c, *bias_c, *weight_o, *bias_o;  // (n, g), (n,), (p, g), (p,)
  const T *kept, *z;                               // sigmoid(S) and Z, (n,) each
  T* outputs;                                      // (T, B, p)
  // What the forward pass keeps for the backward pass
  T* xh;            // (T, B, m + n): each step's input and the state before it
  T* pre;           // (T, B, g): Eq. 1 before ReLU
  T* scale;         // (T, B): what Normalize multiplied by
  T* hidden;        // (relu_layers - 1, T, B, g): each Eq. 2
  T* candidate;     // (T, B, n): c before its ReLU; only with `activate`
  T* density;       // (1,): the share of d that was not zero

  explicit RruScan(Arguments& in) : Scan<T>(in) {
    p = in.number(), g = in.number(), relu_layers = in.number(), normalize = in.number(), activate = in.number();
    h0 = in.tensor<T>();
    weight_x = in.tensor<T>(), weight_h = in.tensor<T>(), bias_j = in.tensor<T>();
    for (int k = 1; k < relu_layers; ++k) weight_k.push_back(in.tensor<T>()), bias_k.push_back(in.tensor<T>());
    weight_c = in.tensor<T>(), bias_c = in.tensor<T>(), weight_o = in.tensor<T>(), bias_o = in.tensor<T>();
    kept = in.tensor<T>(), z = in.tensor<T>();
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
  Packed<T> packed(scan.g, scan.n + scan.p);
  packed.put_transposed(scan.weight_c, scan.n, scan.g, 0, 0);
  packed.put_transposed(scan.weight_o, scan.p, scan.g, 0, scan.n);
  return packed;
}

template <typename T>
void rru_forward(Arguments in) {
  const RruScan<T> scan(in);
  T* last = in.tensor<T>();  // (B, n)

  const int m = scan.m, n = scan.n, p = scan.p, g = scan.g;
  Packed<T> inner(m + n, g);
  inner.put_transposed(scan.weight_x, g, m, 0, 0);
  inner.put_transposed(scan.weight_h, g, n, m, 0);
  std::vector<Packed<T>> middle;
  for (const T* weight : scan.weight_k) middle.emplace_back(g, g).put_transposed(weight, g, g, 0, 0);
  const Packed<T> outer = pack_outputs(scan);
  const std::vector<T> bias_inner = padded<T>(inner.padded(), {{scan.bias_j, g}});
  const std::vector<T> bias_outer = padded<T>(outer.padded(), {{scan.bias_c, n}, {scan.bias_o, p}});
  std::vector<std::vector<T>> bias_middle;
  for (const T* bias : scan.bias_k) bias_middle.push_back(padded<T>(inner.padded(), {{bias, g}}));

  const auto dealt = deal(scan.lengths, scan.steps, scan.batch, in.threads);
  std::vector<int64_t> alive(dealt.size()), seen(dealt.size());
  parallel(static_cast<int>(dealt.size()), [&](int thread) {
    const std::vector<Sequence>& sequences = dealt[thread];
    const int rows = static_cast<int>(sequences.size());
    Rows<T> before(rows, m + n), wide(rows, inner.padded()), other(rows, inner.padded()), both(rows, outer.padded());
    std::vector<const T*> input(rows), start_inner(rows, bias_inner.data()), start_outer(rows, bias_outer.data());
    std::vector<SparseRow<T>> live(rows);
    std::vector<const SparseRow<T>*> live_at(rows);
    std::vector<T> mask(g);
    for (int i = 0; i < rows; ++i) {
      live[i].reserve(g), live_at[i] = &live[i];
      T* first = scan.save && sequences[i].length > 0 ? scan.xh + scan.token(sequences[i], 0) * (m + n) : before.at[i];
      std::copy_n(row_of(scan.h0, sequences[i].row, n), n, first + m);
    }
    for (int s = 0, count; (count = running(sequences, s)) > 0; ++s) {
      for (int i = 0; i < count; ++i) {
        const size_t token = scan.token(sequences[i], s);
        T* row = scan.save ? scan.xh + token * (m + n) : before.at[i];
        std::copy_n(scan.x + token * m, m, row);
        input[i] = row;
      }
      multiply<T>(input.data(), count, inner, start_inner.data(), wide.at.data());  // the sum in Eq. 1
      for (int i = 0; i < count; ++i) {
        T* j = wide.at[i];
        const size_t token = scan.token(sequences[i], s);
        if (scan.normalize) {
          const T factor = 1 / std::sqrt(square_sum(j, g) / g + T(1e-6));
          for (int f = 0; f < g; ++f) j[f] *= factor;
          if (scan.save) scan.scale[token] = factor;
        }
        if (scan.save) std::copy_n(j, g, scan.pre + token * g);
        for (int f = 0; f < g; ++f) j[f] = relu(j[f]);  // Eq. 1
      }
      std::vector<T*>*from = &wide.at, *to = &other.at;
      for (size_t k = 0; k < middle.size(); ++k) {  // Eq. 2
        std::vector<const T*> start(count, bias_middle[k].data());
        multiply<T>(const_cast<const T**>(from->data()), count, middle[k], start.data(), to->data());
        for (int i = 0; i < count; ++i) {
          T* j = (*to)[i];
          for (int f = 0; f < g; ++f) j[f] = relu(j[f]);
          if (scan.save) std::copy_n(j, g, scan.hidden_at(static_cast<int>(k), scan.token(sequences[i], s)));
        }
        std::swap(from, to);
      }
      int nonzero = 0;
      for (int i = 0; i < count; ++i) {  // Eq. 3
        T* d = (*from)[i];
        if (scan.dropout.active()) {
          scan.mask(sequences[i], s, g, mask.data());
          for (int f = 0; f < g; ++f) d[f] *= mask[f];
        }
        for (int f = 0; f < g; ++f) nonzero += d[f] != 0;
      }
      alive[thread] += nonzero, seen[thread] += static_cast<int64_t>(count) * g;
      if (nonzero < kSparseForward * count * g) {  // Eq. 4 and 6
        for (int i = 0; i < count; ++i) live[i].collect((*from)[i], g);
        multiply_sparse<T>(live_at.data(), count, outer, start_outer.data(), both.at.data());
      } else {
        multiply<T>(const_cast<const T**>(from->data()), count, outer, start_outer.data(), both.at.data());
      }
      for (int i = 0; i < count; ++i) {
        const Sequence& sequence = sequences[i];
        const size_t token = scan.token(sequence, s);
        const T* h = input[i] + m;
        T* next = s + 1 == sequence.length ? row_of(last, sequence.row, n)
                  : scan.save              ? scan.xh + scan.token(sequence, s + 1) * (m + n) + m
                                           : before.at[i] + m;
        T *c = both.at[i], *o = c + n;
        if (scan.activate) {
          if (scan.save) std::copy_n(c, n, scan.candidate + token * n);
          for (int f = 0; f < n + p; ++f) c[f] = relu(c[f]);
        }
        for (int f = 0; f < n; ++f) next[f] = scan.kept[f] * h[f] + scan.z[f] * c[f];  // Eq. 5
        std::copy_n(o, p, scan.outputs + token * p);
      }
    }
  });
  if (!scan.save) return;
  *scan.density = static_cast<T>(std::accumulate(alive.begin(), alive.end(), int64_t{0})) /
             std::max<int64_t>(1, std::accumulate(seen.begin(), seen.end(), int64_t{0}));
}

template <typename T>
void rru_backward(Arguments in) {
  const RruScan<T> scan(in);
  const T* grad_outputs = in.tensor<T>();  // (T, B, p)
  const T* grad_last = in.tensor<T>();     // (B, n)
  T* grad_h0 = in.tensor<T>();             // (B, n)
  T* grad_pre = in.tensor<T>();            // (T, B, g): of the sum in Eq. 1
  T* grad_hidden = in.tensor<T>();         // (relu_layers - 1, T, B, g): of the sum in Eq. 2
  T* grad_both = in.tensor<T>();           // (T, B, n + p): of h_t, through c's ReLU if it has one, and of o_t
  T* features = in.tensor<T>();            // (T, B, g): d again
  T* grad_kept = in.tensor<T>();           // (threads, n): parts of the gradient of sigmoid(S)

  const int m = scan.m, n = scan.n, p = scan.p, g = scan.g;
  const bool sparse = *scan.density < kSparseBackward;
  Packed<T> inner(g, n);  // towards h
  inner.put(scan.weight_h, g, n, 0, 0);
  std::vector<Packed<T>> middle;
  for (const T* weight : scan.weight_k) middle.emplace_back(g, g).put(weight, g, g, 0, 0);
  Packed<T> outer = sparse ? pack_outputs(scan) : Packed<T>(n + p, g);  // towards d
  if (!sparse) outer.put(scan.weight_c, n, g, 0, 0), outer.put(scan.weight_o, p, g, n, 0);
  const int width = round_up(g, Packed<T>::width), width_both = round_up(n + p, Packed<T>::width);

  std::fill_n(grad_kept, static_cast<size_t>(in.threads) * n, T(0));
  const auto dealt = deal(scan.lengths, scan.steps, scan.batch, in.threads);
  parallel(static_cast<int>(dealt.size()), [&](int thread) {
    const std::vector<Sequence>& sequences = dealt[thread];
    const int rows = static_cast<int>(sequences.size());
    Rows<T> grad_h(rows, inner.padded()), decayed(rows, inner.padded()), both(rows, width_both);
    Rows<T> grad_d(rows, width), other(rows, width), found(rows, g);
    std::vector<const T*> from(rows);
    std::vector<SparseRow<T>> live(rows);
    std::vector<const SparseRow<T>*> live_at(rows);
    std::vector<T> mask(g, T(1));
    T* kept_sum = row_of(grad_kept, thread, n);
    for (int i = 0; i < rows; ++i) {
      live[i].reserve(g), live_at[i] = &live[i];
      std::copy_n(row_of(grad_last, sequences[i].row, n), n, grad_h.at[i]);
    }
    for (int s = rows ? sequences[0].length - 1 : -1; s >= 0; --s) {
      const int count = running(sequences, s);
      for (int i = 0; i < count; ++i) {  // Eq. 5 and 6
        const size_t token = scan.token(sequences[i], s);
        const T *h = scan.xh + token * (m + n) + m, *dh = grad_h.at[i], *go = grad_outputs + token * p;
        T *e = grad_both + token * (n + p), *dc = both.at[i];
        std::copy_n(dh, n, e);
        std::copy_n(go, p, e + n);
        if (scan.activate) {
          const T *c = scan.candidate + token * n, *o = scan.outputs + token * p;
          for (int f = 0; f < n; ++f) e[f] = c[f] > 0 ? e[f] : 0;
          for (int f = 0; f < p; ++f) e[n + f] = o[f] > 0 ? e[n + f] : 0;
        }
        for (int f = 0; f < n; ++f) {
          dc[f] = scan.z[f] * e[f];
          kept_sum[f] += dh[f] * h[f];
          decayed.at[i][f] = scan.kept[f] * dh[f];
        }
        std::copy_n(e + n, p, dc + n);
      }
      for (int i = 0; i < count; ++i) {  // d again, Eq. 3
        const size_t token = scan.token(sequences[i], s);
        const T* j = middle.empty() ? scan.pre + token * g
                                    : scan.hidden_at(static_cast<int>(middle.size()) - 1, token);
        scan.mask(sequences[i], s, g, mask.data());
        T* d = features + token * g;
        for (int f = 0; f < g; ++f) d[f] = relu(j[f]) * mask[f];
        T* through = other.at[i];  // what Eq. 3 and the ReLU before it multiply a gradient by
        for (int f = 0; f < g; ++f) through[f] = d[f] != 0 ? mask[f] : 0;
        if (sparse) live[i].collect(through, g);
      }
      if (sparse) {
        multiply_at<T>(const_cast<const T**>(both.at.data()), count, outer, live_at.data(), found.at.data());
        for (int i = 0; i < count; ++i) {
          std::fill_n(grad_d.at[i], g, T(0));
          for (int k = 0; k < live[i].count; ++k)
            grad_d.at[i][live[i].index[k]] = found.at[i][k] * live[i].value[k];
        }
      } else {
        multiply<T>(const_cast<const T**>(both.at.data()), count, outer, nullptr, grad_d.at.data());
        for (int i = 0; i < count; ++i)
          for (int f = 0; f < g; ++f) grad_d.at[i][f] *= other.at[i][f];
      }
      std::vector<T*>*grad = &grad_d.at, *spare = &other.at;
      for (int k = static_cast<int>(middle.size()) - 1; k >= 0; --k) {  // Eq. 2; ReLU of its result is done already
        for (int i = 0; i < count; ++i) {
          T* target = grad_hidden + (static_cast<size_t>(k) * scan.steps * scan.batch + scan.token(sequences[i], s)) * g;
          std::copy_n((*grad)[i], g, target);
          from[i] = target;
        }
        multiply<T>(from.data(), count, middle[k], nullptr, spare->data());
        std::swap(grad, spare);
        for (int i = 0; i < count; ++i) {
          const size_t token = scan.token(sequences[i], s);
          const T* j = k == 0 ? scan.pre + token * g : scan.hidden_at(k - 1, token);
          for (int f = 0; f < g; ++f) (*grad)[i][f] = j[f] > 0 ? (*grad)[i][f] : 0;
        }
      }
      for (int i = 0; i < count; ++i) {  // Normalize of Eq. 1
        const size_t token = scan.token(sequences[i], s);
        const T *dj = (*grad)[i], *j = scan.pre + token * g;
        T* da = grad_pre + token * g;
        if (scan.normalize) {
          const T factor = scan.scale[token], mean = dot(dj, j, g) / g;
          for (int f = 0; f < g; ++f) da[f] = factor * (dj[f] - j[f] * mean);
        } else {
          std::copy_n(dj, g, da);
        }
        from[i] = da;
      }
      multiply<T>(from.data(), count, inner, const_cast<const T**>(decayed.at.data()), grad_h.at.data());
    }
    for (int i = 0; i < rows; ++i)
      std::copy_n(grad_h.at[i], n, row_of(grad_h0, sequences[i].row, n));
  });
}
}  // namespace rru::RRU_ISA
