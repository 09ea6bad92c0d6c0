// Vector registers and loops over rows.
//
// All headers here are compiled once per instruction set (see setup.py). RRU_ISA is the namespace, RRU_VECTOR_BYTES the
// width of a register. The vector types are extensions of GCC and Clang, so the same source works for SSE2, AVX2,
// AVX-512 and NEON.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#define RRU_UNROLL _Pragma("GCC unroll 16")

namespace rru::RRU_ISA {

template <typename T>
struct Simd {
  static constexpr int lanes = RRU_VECTOR_BYTES / sizeof(T);
  typedef T type __attribute__((vector_size(RRU_VECTOR_BYTES)));
};

template <typename T>
using Vector = typename Simd<T>::type;

template <typename T>
inline Vector<T> load(const T* p) {
  Vector<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <typename T>
inline void store(T* p, Vector<T> v) {
  std::memcpy(p, &v, sizeof v);
}

template <typename T>
inline Vector<T> load_some(const T* p, int count) {
  Vector<T> v{};
  std::memcpy(&v, p, sizeof(T) * count);
  return v;
}

template <typename T>
inline void store_some(T* p, Vector<T> v, int count) {
  std::memcpy(p, &v, sizeof(T) * count);
}

// Return the sum of a vector's entries.
template <typename T>
inline T sum(Vector<T> v) {
  constexpr int lanes = Simd<T>::lanes;
  T parts[lanes];
  std::memcpy(parts, &v, sizeof v);
  RRU_UNROLL
  for (int half = lanes / 2; half > 0; half /= 2)
    RRU_UNROLL
  for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

// Call body(load, store) for i = 0, lanes, 2 lanes, ... `load(p)` reads a vector at p[i] and `store(p, v)` writes one,
// never past `size`.
template <typename T, typename Body>
inline void for_each(int size, const Body& body) {
  constexpr int lanes = Simd<T>::lanes;
  int i = 0;
  for (; i + lanes <= size; i += lanes)
    body([i](const T* p) { return load(p + i); }, [i](T* p, Vector<T> v) { store(p + i, v); });
  if (const int rest = size - i; rest > 0)
    body([i, rest](const T* p) { return load_some(p + i, rest); },
         [i, rest](T* p, Vector<T> v) { store_some(p + i, v, rest); });
}

inline int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace rru::RRU_ISA
