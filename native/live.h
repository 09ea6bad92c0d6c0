// The live entries of d: those that neither ReLU nor dropout made zero. A wide RRU (rru_wide.h) works on these alone.
#pragma once
#include "arguments.h"
#include "dropout.h"
#include "sparse.h"

namespace rru::RRU_ISA {

typedef int32_t Integers __attribute__((vector_size(RRU_VECTOR_BYTES)));

// For each set of lanes, given as bits, the numbers of its lanes in ascending order.
struct LaneOrders {
  uint8_t at[256][8] = {};
  constexpr LaneOrders() {
    for (int set = 0; set < 256; ++set)
      for (int lane = 0, count = 0; lane < 8; ++lane)
        if (set >> lane & 1) at[set][count++] = static_cast<uint8_t>(lane);
  }
};
#if RRU_VECTOR_BYTES == 32
alignas(kCacheLine) inline constexpr LaneOrders kLaneOrders;
#endif

// Write index and value of the lanes where `keep` is not zero, and anything after them, up to a whole register. Return
// how many there are. A loop with a condition per entry would take several times as long: nobody can guess dropout.
inline int append(Integers keep, Integers index, Vector<float> value, int* to_index, float* to_value) {
#if RRU_VECTOR_BYTES == 64
  const __mmask16 set = _mm512_movepi32_mask((__m512i)keep);
  _mm512_storeu_si512(to_index, _mm512_maskz_compress_epi32(set, (__m512i)index));
  _mm512_storeu_ps(to_value, _mm512_maskz_compress_ps(set, (__m512)value));
  return __builtin_popcount(set);
#elif RRU_VECTOR_BYTES == 32
  const int set = _mm256_movemask_ps((__m256)keep);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kLaneOrders.at[set]));
  const __m256i order = _mm256_cvtepu8_epi32(bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_index), _mm256_permutevar8x32_epi32((__m256i)index, order));
  _mm256_storeu_ps(to_value, _mm256_permutevar8x32_ps((__m256)value, order));
  return __builtin_popcount(set);
#else
  int count = 0;
  for (int i = 0; i < Simd<float>::lanes; ++i) {
    to_index[count] = index[i], to_value[count] = value[i];
    count -= keep[i];  // -1 or 0
  }
  return count;
#endif
}

// A growing list of entries. It has room for a register more than a row has features, see `append`.
template <typename T>
struct LiveList {
  static constexpr int room = 64;
  int* index;
  T* value;
  int count = 0;

  void add(int at, T entry) { index[count] = at, value[count] = entry, ++count; }
};

// Add features first .. first + size whose random word reaches `threshold` and whose value is positive, with
// value * factor. With Positive false, adds all whose word does.
template <bool Positive, typename T>
inline void add_kept(const uint32_t* words, uint32_t threshold, const T* values, T factor, int first, int size,
                     LiveList<T>& list) {
  int i = 0;
  if constexpr (std::is_same_v<T, float>) {
    constexpr int lanes = Simd<float>::lanes;
    typedef uint32_t Naturals __attribute__((vector_size(RRU_VECTOR_BYTES)));
    const Naturals least = threshold - Naturals{};  // in every lane
    const Vector<float> zero{};
    Integers index;
    for (int lane = 0; lane < lanes; ++lane) index[lane] = first + lane;
    for (; i + lanes <= size; i += lanes, index += lanes) {
      Naturals word;
      std::memcpy(&word, words + i, sizeof word);
      Integers keep = (Integers)(word >= least);
      Vector<float> value{};
      if constexpr (Positive) {
        value = load(values + first + i);
        keep &= (Integers)(value > zero);
        value *= factor;
      }
      list.count += append(keep, index, value, list.index + list.count, list.value + list.count);
    }
  }
  for (; i < size; ++i) {
    const T value = Positive ? values[first + i] : T(0);
    if (words[i] >= threshold && (!Positive || value > 0)) list.add(first + i, value * factor);
  }
}

// List the features that dropout keeps and whose value is positive, with value * factor; with Positive false, all that
// dropout keeps, with no values.
template <bool Positive, typename T>
void list_kept(const Dropout& dropout, int step, int row, int features, const T* values, T factor, LiveList<T>& list) {
  const double share = std::nearbyint(dropout.rate * 4294967296.0);
  if (share > 4294967295.0) return;  // as in Dropout::mask
  alignas(64) uint32_t words[Dropout::words];
  for (int first = 0; first < features; first += Dropout::words) {
    dropout.random(first / 4, row, step, words);
    const int size = std::min(Dropout::words, features - first);
    add_kept<Positive>(words, static_cast<uint32_t>(share), values, factor, first, size, list);
  }
}

// List the entries of `from` whose value is positive, with value * factor.
template <typename T>
void list_positive(const int* index, const T* value, int count, T factor, LiveList<T>& list) {
  int i = 0;
  if constexpr (std::is_same_v<T, float>) {
    constexpr int lanes = Simd<float>::lanes;
    const Vector<float> zero{};
    for (; i + lanes <= count; i += lanes) {
      Integers at;
      std::memcpy(&at, index + i, sizeof at);
      const Vector<float> entries = load(value + i);
      const Integers keep = (Integers)(entries > zero);
      list.count += append(keep, at, entries * factor, list.index + list.count, list.value + list.count);
    }
  }
  for (; i < count; ++i)
    if (value[i] > 0) list.add(index[i], value[i] * factor);
}

// The live entries of all tokens. They fill memory of the caller from its start, in the order in which threads add them.
// What no entry needs is never touched, so it costs only address space.
template <typename T>
class LiveRows {
 public:
  struct Place {
    int64_t start;
    int32_t count, unused;
  };

  void read(Arguments& in, int steps, int batch, int features) {
    places_ = in.tensor<Place>("live_places", {steps, batch});
    index_ = in.tensor<int>("live_index", {steps, batch, features});
    value_ = in.tensor<T>("live_value", {steps, batch, features});
    room_ = static_cast<size_t>(steps) * batch * features, features_ = features;
  }
  // Store a row. Must be called once for a token.
  void add(size_t token, const LiveList<T>& list) const {
    const size_t start = end_.fetch_add(list.count, std::memory_order_relaxed);
    places_[token] = {static_cast<int64_t>(start), list.count, 0};
    std::copy_n(list.index, list.count, index_ + start);
    std::copy_n(list.value, list.count, value_ + start);
  }
  // Return a row, without its bounds. Throw unless all its entries are inside: another call wrote them.
  SparseRow<T> checked(size_t token) const {
    const Place place = places_[token];
    const bool inside = place.count >= 0 && place.start >= 0 && place.count <= features_ &&
                        static_cast<uint64_t>(place.start) <= room_ - place.count;
    unsigned largest = 0;
    for (int i = 0; inside && i < place.count; ++i)
      largest = std::max(largest, static_cast<unsigned>(index_[place.start + i]));
    if (!inside || (place.count && largest >= static_cast<unsigned>(features_)))
      throw Mismatch("the live entries of d are not those of the forward pass");
    return (*this)[token];
  }
  SparseRow<T> operator[](size_t token) const {
    return {index_ + places_[token].start, value_ + places_[token].start, places_[token].count, nullptr};
  }
  int64_t start(size_t token) const { return places_[token].start; }

 private:
  Place* places_ = nullptr;  // (T, B)
  int* index_ = nullptr;     // (T, B, features)
  T* value_ = nullptr;       // (T, B, features)
  size_t room_ = 0;
  int features_ = 0;
  mutable std::atomic<size_t> end_{0};
};

inline int sparse_blocks(int features) { return (features + kSparseBlock - 1) / kSparseBlock; }

// Set bounds[b] to the first entry in block b, see SparseRow. `bounds` has one entry more than there are blocks.
inline void find_bounds(const int* index, int count, int blocks, int* bounds) {
  std::fill_n(bounds, blocks + 1, 0);
  for (int i = 0; i < count; ++i) bounds[index[i] / kSparseBlock + 1] = i + 1;
  for (int b = 0; b < blocks; ++b) bounds[b + 1] = std::max(bounds[b], bounds[b + 1]);
}
}  // namespace rru::RRU_ISA
