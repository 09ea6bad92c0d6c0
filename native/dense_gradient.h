// The gradient of a matrix of a large layer, from dense rows of all steps: products that torch does at two thirds of the
// processor's rate. Small layers: gradients.h. Gradients that skip zeros: sparse.h. In bfloat16:
// bfloat16_gradients.h.
#pragma once
#include <cmath>

#include "gradients.h"

namespace rru::RRU_ISA {

// result[f][c] = sum over all tokens of grads[token][f] * values[token][c].
//
// Each thread computes a share of the features f. It takes a block of tokens at a time and copies grads and values into
// the order in which they are read: groups of six features, and panels of columns. A tile, six features by one panel,
// has its sums in registers during a block, and in `sums` between blocks. If the result is known to be symmetric, tiles
// below its diagonal are mirrored, not computed. With `relu`, values are taken through a ReLU. The result is cut after
// column `split`.
template <typename T>
struct DenseGradient {
  const int tokens, features, columns, split;
  const bool symmetric, relu;
  const int grads_row, values_row;  // from one token to the next; rows may be part of wider ones
  const T *grads, *values;
  T *left, *right;  // (features, split), (features, columns - split): the result

  explicit DenseGradient(Arguments& in)
      : tokens(in.between("tokens", 1, kMostTokens)),
        features(in.size("features")),
        columns(in.size("columns")),
        split(in.between("split", 0, columns)),
        symmetric(in.between("symmetric", 0, features == columns && split == 0)),
        relu(in.flag("relu")),
        grads_row(in.between("grads_row", features, 1 << 30)),
        values_row(in.between("values_row", columns, 1 << 30)),
        grads(in.tensor<const T>("grads", {extent(grads_row, features)})),
        values(in.tensor<const T>("values", {extent(values_row, columns)})),
        left(in.tensor<T>("left", {features, split})),
        right(in.tensor<T>("right", {features, columns - split})) {}

  void run(Share share) const {
    const int first = first_feature(share.index, share.size), count = first_feature(share.index + 1, share.size) - first;
    const int padded = round_up(columns, width);
    if (count == 0) return;
    const Buffer<T> near_grads(static_cast<size_t>(features_together) * tokens_together);
    const Buffer<T> near_values(static_cast<size_t>(padded) * tokens_together);
    const Buffer<T> sums(static_cast<size_t>(round_up(count, group)) * padded, T(0));
    for (int token = 0; token < tokens; token += tokens_together) {
      const int present = std::min(tokens_together, tokens - token);
      copy_values(token, present, near_values.get());
      for (int f = 0; f < count; f += features_together) {
        const int some = std::min(features_together, count - f);
        copy_grads(token, present, first + f, some, near_grads.get());
        for (int c = symmetric ? (first + f) / width * width : 0; c < padded; c += width)
          for (int i = 0; i < some && (!symmetric || first + f + i < c + width); i += group)
            add_tile<T, group, 2>({near_grads.get() + i * present, 1, group},
                                  near_values.get() + static_cast<size_t>(c) * present, width, present,
                                  sums.get() + static_cast<size_t>(f + i) * padded + c, padded);
      }
    }
    for (int f = 0; f < count; ++f) put_row(first + f, sums.get() + static_cast<size_t>(f) * padded);
  }

 private:
  static constexpr int group = 6, width = 2 * Simd<T>::lanes;
  static constexpr int tokens_together = 256, features_together = 64 * group;  // fit the L2 cache

  // Return where the features of a share begin. The rows of a symmetric result become shorter, so shares grow.
  int first_feature(int index, int size) const {
    if (!symmetric) return Share{index, size}.first(features);
    return static_cast<int>(features * (1 - std::sqrt(1 - static_cast<double>(index) / size)));
  }
  void put_row(int f, const T* row) const {
    if (!symmetric) {
      std::copy_n(row, split, left + static_cast<size_t>(f) * split);
      std::copy(row + split, row + columns, right + static_cast<size_t>(f) * (columns - split));
      return;
    }
    std::copy(row + f, row + columns, right + static_cast<size_t>(f) * columns + f);
    for (int c = f + 1; c < columns; ++c) right[static_cast<size_t>(c) * columns + f] = row[c];
  }

  int64_t extent(int row, int size) const { return (tokens - int64_t{1}) * row + size; }

  // Copy rows of a block of tokens: element (token, column) goes to [column / size][token][column % size]. A few groups
  // at a time, because groups are a power of two apart, so that only few of them fit the cache together.
  template <int size, bool relu>
  static void copy_in_groups(const T* from, size_t row, int tokens, int columns, T* target) {
    constexpr int together = 128 / size * size;
    const size_t next = static_cast<size_t>(size) * tokens;  // from one group to the next
    for (int first = 0; first < columns; first += together) {
      const int whole = std::min(together, columns - first) / size * size, rest = std::min(together, columns - first) - whole;
      for (int t = 0; t < tokens; ++t) {
        const T* source = from + t * row + first;
        T* group = target + first / size * next + t * size;
        for (int i = 0; i < whole; i += size, group += next)
          for (int c = 0; c < size; ++c) group[c] = relu && source[i + c] < 0 ? 0 : source[i + c];
        if (rest == 0) continue;
        for (int c = 0; c < size; ++c) group[c] = c >= rest || (relu && source[whole + c] < 0) ? 0 : source[whole + c];
      }
    }
  }
  void copy_values(int token, int count, T* target) const {
    const auto copy = relu ? copy_in_groups<width, true> : copy_in_groups<width, false>;
    copy(values + static_cast<size_t>(token) * values_row, values_row, count, columns, target);
  }
  void copy_grads(int token, int count, int first, int some, T* target) const {
    copy_in_groups<group, false>(grads + static_cast<size_t>(token) * grads_row + first, grads_row, count, some, target);
  }
};

template <typename T>
void run(DenseGradient<T>& gradient, int threads) {
  in_parallel(threads, [&](int thread) { gradient.run({thread, threads}); }, [] {});
}
}  // namespace rru::RRU_ISA
