// Functions of whole rows, a register at a time.
#pragma once
#include "kernels.h"

namespace rru::RRU_ISA {

template <typename T>
struct Bits;
template <>
struct Bits<float> {
  typedef int32_t type __attribute__((vector_size(RRU_VECTOR_BYTES)));
  static constexpr int mantissa = 23, bias = 127, terms = 7;
  static constexpr float largest = 88.0f;
};
template <>
struct Bits<double> {
  typedef int64_t type __attribute__((vector_size(RRU_VECTOR_BYTES)));
  static constexpr int mantissa = 52, bias = 1023, terms = 13;
  static constexpr double largest = 708.0;
};

// e^x to the last bit or two: x = k ln 2 + r, a polynomial for e^r, and k added to the exponent.
template <typename T>
inline Vector<T> exponential(Vector<T> x) {
  using B = Bits<T>;
  constexpr T log2e = T(1.44269504088896340736), high = T(sizeof(T) == 4 ? 0.693359375 : 0.693147180369123816490),
              low = T(sizeof(T) == 4 ? -2.12194440e-4 : 1.90821492927058770002e-10);
  constexpr T magic = T(sizeof(T) == 4 ? 12582912.0 : 6755399441055744.0);  // adding it rounds to a whole number
  const Vector<T> top = B::largest - Vector<T>{}, bottom = -top;
  x = x > top ? top : x;
  x = x < bottom ? bottom : x;
  const Vector<T> shifted = x * log2e + magic, k = shifted - magic;
  const Vector<T> r = (x - k * high) - k * low;
  Vector<T> sum = Vector<T>{} + 1;
  RRU_UNROLL
  for (int i = B::terms; i >= 1; --i) sum = sum * r * (T(1) / i) + 1;
  const typename B::type power = ((typename B::type)shifted + B::bias) << B::mantissa;  // k is in shifted's last bits
  return sum * (Vector<T>)power;
}

template <typename T>
inline Vector<T> sigmoid(Vector<T> x) {
  return 1 / (1 + exponential<T>(-x));
}

template <typename T>
inline Vector<T> tanh(Vector<T> x) {
  const Vector<T> e = exponential<T>(-2 * x);
  return (1 - e) / (1 + e);
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

// Calls body(load, store) for i = 0, lanes, 2 lanes ...: `load(p)` reads p[i ...] and `store(p, v)` writes p[i ...],
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
}  // namespace rru::RRU_ISA
