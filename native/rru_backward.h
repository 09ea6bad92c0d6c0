// The RRU's gradients.
#pragma once
#include "rru.h"

namespace rru::RRU_ISA {

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
