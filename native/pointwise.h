// exp, sigmoid and tanh of a register. Denormal inputs and results count as zero (see FlushDenormals).
#pragma once
#include "simd.h"

namespace rru::RRU_ISA {

template <typename T>
struct Exponent;
template <>
struct Exponent<float> {
  typedef uint32_t Bits __attribute__((vector_size(RRU_VECTOR_BYTES)));
  static constexpr int mantissa = 23, bias = 127, terms = 7;
  static constexpr float largest = 88.0f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float magic = 12582912.0f;  // adding it rounds to a whole number
};
template <>
struct Exponent<double> {
  typedef uint64_t Bits __attribute__((vector_size(RRU_VECTOR_BYTES)));
  static constexpr int mantissa = 52, bias = 1023, terms = 13;
  static constexpr double largest = 709.0, ln2_high = 0.693147180369123816490, ln2_low = 1.90821492927058770002e-10;
  static constexpr double magic = 6755399441055744.0;
};

constexpr double inverse_factorial(int i) { return i <= 1 ? 1.0 : inverse_factorial(i - 1) / i; }

// e^x = power * (1 + rest), accurate to a bit or two: x = k ln 2 + r, power = 2^k, and rest = e^r - 1 from its series.
template <typename T>
struct Exponential {
  Vector<T> power, rest;

  explicit Exponential(Vector<T> x) {
    using E = Exponent<T>;
    using Bits = typename E::Bits;
    constexpr T log2e = T(1.44269504088896340736);
    const Vector<T> top = E::largest - Vector<T>{}, bottom = -top;
    x = x > top ? top : x;  // NaN stays NaN
    x = x < bottom ? bottom : x;
    const Vector<T> shifted = x * log2e + E::magic, k = shifted - E::magic;
    const Vector<T> r = (x - k * E::ln2_high) - k * E::ln2_low;
    Vector<T> series = Vector<T>{} + T(inverse_factorial(E::terms));
    RRU_UNROLL
    for (int i = E::terms - 1; i >= 1; --i) series = series * r + T(inverse_factorial(i));
    rest = series * r;
    power = (Vector<T>)(((Bits)shifted + E::bias) << E::mantissa);  // k is in the last bits of `shifted`
  }
};

template <typename T>
inline Vector<T> exp(Vector<T> x) {
  const Exponential<T> e(x);
  return (1 + e.rest) * e.power;
}

template <typename T>
inline Vector<T> sigmoid(Vector<T> x) {
  return 1 / (1 + exp<T>(-x));
}

// (1 - e) / (1 + e) with e = exp(-2x). Uses the series for 1 - e, because near zero the subtraction loses all digits.
template <typename T>
inline Vector<T> tanh(Vector<T> x) {
  const Exponential<T> e(-2 * x);
  const Vector<T> difference = (1 - e.power) - e.rest * e.power;
  return difference / (2 - difference);
}
}  // namespace rru::RRU_ISA
