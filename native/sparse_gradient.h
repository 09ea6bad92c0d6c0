// Gradients of matrices that skip zeros.
#pragma once
#include <array>
#include <memory>

#include "sparse.h"

namespace rru::RRU_ISA {

// The nonzeros of a token, in ascending order of index, with a value for each of `Count` gradients.
template <typename T, int Count>
struct SparseToken {
  const int* index;
  std::array<const T*, Count> values;
  int count;
};

// A gradient to compute. dense(token, column, size, target) copies part of a dense row. result(f, count, column, size,
// sums, width) receives a block of results, sums[f * width + column].
template <typename Dense, typename Result>
struct GradientOf {
  const Dense& dense;
  int columns;
  const Result& result;
};
template <typename Dense, typename Result>
GradientOf(const Dense&, int, const Result&) -> GradientOf<Dense, Result>;

// `Count` gradients, each the sum over all tokens of sparse(token)[f] * dense(token)[column], for the features f in this
// share. Both factors are split into blocks: a block of dense rows stays in the L1 cache, and the sums of a block of
// features, 256 kB, in the L2 cache. Within a block, entries are sorted by feature. This takes about a quarter of the
// time of a gradient, so gradients with the same nonzeros share it.
template <typename T, int Count, typename Sparse>
class SparseGradient {
 public:
  // sparse(token) returns a SparseToken of `features`.
  SparseGradient(const Sparse& sparse, int tokens, int features, Share share)
      : sparse_(sparse),
        tokens_(tokens),
        blocks_((tokens + tokens_together - 1) / tokens_together),
        begin_(share.first(features)),
        end_(share.last(features)),
        first_(tokens),
        last_(tokens),
        bounds_(static_cast<size_t>(blocks_) * (features_together + 1)),
        near_(tokens_together * width),
        sums_(features_together * width) {}

  // The i-th gradient uses the i-th value of each entry.
  template <typename... Gradients>
  void run(const Gradients&... gradients) {
    static_assert(sizeof...(gradients) == Count, "one value for each gradient");
    for (int t = 0; t < tokens_; ++t) last_[t] = position(t, 0, begin_);
    for (int first = begin_; first < end_; first += features_together) {
      const int count = std::min(end_ - first, features_together);
      sort(first, count);
      int which = 0;
      (add_columns(gradients, which++, first, count), ...);
    }
  }

 private:
  static constexpr int lanes = Simd<T>::lanes, vectors = 8, width = vectors * lanes;
  static constexpr int tokens_together = 64, features_together = (256 << 10) / (width * sizeof(T));

  static_assert(tokens_together <= 256, "a byte holds a token's index in its block");

  int first_token(int b) const { return b * tokens_together; }
  int last_token(int b) const { return std::min(tokens_, (b + 1) * tokens_together); }
  size_t* bounds(int b) { return bounds_.data() + static_cast<size_t>(b) * (features_together + 1); }

  // Return a token's first entry from number `from` on whose feature is at least f.
  int position(int token, int from, int f) const {
    const SparseToken<T, Count> row = sparse_(token);
    return static_cast<int>(std::lower_bound(row.index + from, row.index + row.count, f) - row.index);
  }

  // Sorts the entries with features first .. first + count.
  void sort(int first, int count) {
    size_t total = 0;
    for (int t = 0; t < tokens_; ++t) {
      first_[t] = last_[t];
      last_[t] = position(t, first_[t], first + count);
      total += last_[t] - first_[t];
    }
    if (total > room_) {
      token_.reset(new uint8_t[total]);
      for (auto& values : values_) values.reset(new T[total]);
      room_ = total;
    }
    size_t start = 0;
    for (int b = 0; b < blocks_; ++b) start = sort_block(b, first, count, start);
  }
  // Put the entries of block b at `start`, sorted by feature. Those of f start at bounds(b)[f]. Return their end.
  size_t sort_block(int b, int first, int count, size_t start) {
    size_t next[features_together + 1] = {};
    for (int t = first_token(b); t < last_token(b); ++t) {
      const int* index = sparse_(t).index;
      for (int i = first_[t]; i < last_[t]; ++i) ++next[index[i] - first + 1];
    }
    size_t* bound = bounds(b);
    bound[0] = next[0] = start;
    for (int f = 0; f < count; ++f) bound[f + 1] = next[f + 1] += next[f];
    for (int t = first_token(b); t < last_token(b); ++t) {
      const SparseToken<T, Count> row = sparse_(t);
      for (int i = first_[t]; i < last_[t]; ++i) {
        const size_t place = next[row.index[i] - first]++;
        token_[place] = static_cast<uint8_t>(t - first_token(b));
        for (int v = 0; v < Count; ++v) values_[v][place] = row.values[v][i];
      }
    }
    return bound[count];
  }

  template <typename Gradient>
  void add_columns(const Gradient& gradient, int which, int first, int count) {
    for (int column = 0; column < gradient.columns; column += width) {
      const int present = std::min(gradient.columns - column, width);
      std::fill_n(sums_.get(), sums_.size(), T(0));
      for (int b = 0; b < blocks_; ++b) {
        for (int t = first_token(b); t < last_token(b); ++t)
          gradient.dense(t, column, present, near_.get() + (t - first_token(b)) * width);
        add_block(b, count, which);
      }
      gradient.result(first, count, column, present, sums_.get(), width);
    }
  }
  void add_block(int b, int count, int which) {
    const size_t* bound = bounds(b);
    const uint8_t* token = token_.get();
    const T *value = values_[which].get(), *near = near_.get();
    for (int f = 0; f < count; ++f) {
      Vector<T> total[vectors];
      T* target = sums_.get() + f * width;
      RRU_UNROLL
      for (int v = 0; v < vectors; ++v) total[v] = load(target + v * lanes);
      for (size_t i = bound[f]; i < bound[f + 1]; ++i) {
        const T* line = near + token[i] * width;
        RRU_UNROLL
        for (int v = 0; v < vectors; ++v) total[v] += value[i] * load(line + v * lanes);
      }
      RRU_UNROLL
      for (int v = 0; v < vectors; ++v) store(target + v * lanes, total[v]);
    }
  }

  const Sparse& sparse_;
  const int tokens_, blocks_, begin_, end_;
  std::vector<int> first_, last_;  // of each token: the entries with features of this block
  std::vector<size_t> bounds_;     // may exceed an int: the entries of all tokens
  std::unique_ptr<uint8_t[]> token_;                // of each entry, its index in the block
  std::array<std::unique_ptr<T[]>, Count> values_;  // of each entry
  size_t room_ = 0;                                 // in these two
  Buffer<T> near_, sums_;
};
}  // namespace rru::RRU_ISA
