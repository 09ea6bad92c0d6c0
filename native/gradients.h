// The gradients of the weights and inputs of a small layer, from the tensors that its loops wrote, on one thread.
// Large layers leave these products to torch: see scan/native/spec.py.
#pragma once
#include "arguments.h"
#include "pointwise.h"
#include "products.h"
#include "threads.h"

namespace rru::RRU_ISA {

// A matrix in memory: element (r, c) is at data[r * row + c * column].
template <typename T>
struct Strided {
  const T* data;
  size_t row, column;
};

// Add to out[r][c] the sum over k < depth of a(r, k) * b[k * b_row + c], for `Rows` rows and `Vectors` registers.
template <typename T, int Rows, int Vectors>
inline void add_tile(Strided<T> a, const T* b, size_t b_row, int depth, T* out, size_t out_row) {
  constexpr int lanes = Simd<T>::lanes;
  Vector<T> sums[Rows][Vectors];
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < Vectors; ++v) sums[r][v] = load(out + r * out_row + v * lanes);
  for (int k = 0; k < depth; ++k) {
    Vector<T> line[Vectors];
    RRU_UNROLL
    for (int v = 0; v < Vectors; ++v) line[v] = load(b + k * b_row + v * lanes);
    RRU_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const T scalar = a.data[r * a.row + k * a.column];
      RRU_UNROLL
      for (int v = 0; v < Vectors; ++v) sums[r][v] += scalar * line[v];
    }
  }
  RRU_UNROLL
  for (int r = 0; r < Rows; ++r)
    RRU_UNROLL
  for (int v = 0; v < Vectors; ++v) store(out + r * out_row + v * lanes, sums[r][v]);
}

// Call work(first row, integral constant with the number of rows) for all rows, in groups that fit the registers.
template <typename Work>
inline void in_groups(int rows, const Work& work) {
  int r = 0;
  for (; r + 6 <= rows; r += 6) work(r, std::integral_constant<int, 6>());
  for (; r + 2 <= rows; r += 2) work(r, std::integral_constant<int, 2>());
  if (r < rows) work(r, std::integral_constant<int, 1>());
}

// Add to out the last `rest` columns of a * b, fewer than a register holds.
template <typename T>
void add_last(Strided<T> a, int rows, const T* b, size_t b_row, int columns, int rest, int depth, T* out) {
  constexpr int lanes = Simd<T>::lanes;
  if (columns < lanes) {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        T total = 0;
        for (int k = 0; k < depth; ++k) total += a.data[r * a.row + k * a.column] * b[k * b_row + c];
        out[static_cast<size_t>(r) * columns + c] += total;
      }
    return;
  }
  in_groups(rows, [&](int r, auto count) {  // a whole register, of which only the last entries are new
    T sums[6 * lanes] = {};
    add_tile<T, count(), 1>({a.data + r * a.row, a.row, a.column}, b + columns - lanes, b_row, depth, sums, lanes);
    for (int i = 0; i < count(); ++i)
      for (int c = 0; c < rest; ++c)
        out[static_cast<size_t>(r + i) * columns + columns - rest + c] += sums[i * lanes + lanes - rest + c];
  });
}

// Compute out = a * b, `rows` x `columns`, in blocks of the depth that stay in the L1 cache.
template <typename T>
void multiply_strided(Strided<T> a, int rows, const T* b, size_t b_row, int columns, int depth, T* out) {
  constexpr int lanes = Simd<T>::lanes, block = 128;
  std::fill_n(out, static_cast<size_t>(rows) * columns, T(0));
  for (int k = 0; k < depth; k += block) {
    const int present = std::min(block, depth - k);
    const Strided<T> part{a.data + k * a.column, a.row, a.column};
    const T* lines = b + k * b_row;
    int c = 0;
    auto add = [&](auto vectors) {
      for (; c + vectors() * lanes <= columns; c += vectors() * lanes)
        in_groups(rows, [&](int r, auto count) {
          add_tile<T, count(), vectors()>({part.data + r * a.row, a.row, a.column}, lines + c, b_row, present,
                                          out + static_cast<size_t>(r) * columns + c, columns);
        });
    };
    add(std::integral_constant<int, 2>()), add(std::integral_constant<int, 1>());
    if (c < columns) add_last(part, rows, lines, b_row, columns, columns - c, present, out);
  }
}

// The gradient of a bias: the sum over all tokens.
template <typename T>
void sum_tokens(const T* grads, size_t row, int tokens, int size, T* out) {
  std::fill_n(out, size, T(0));
  for (int t = 0; t < tokens; ++t)
    for_each<T>(size, [&](auto load, auto store) { store(out, load(out) + load(grads + t * row)); });
}

// The arguments that all cells share.
template <typename T>
struct Gradients {
  const int tokens, m, n, p;
  const bool wants_x;

  explicit Gradients(Arguments& in)
      : tokens(in.between("tokens", 0, kMostTokens)),
        m(in.size("input_size")),
        n(in.size("hidden_size")),
        p(in.size("output_size")),
        wants_x(in.flag("wants_x")) {}

  // Compute the gradient (out, in) of a matrix from the rows of its results' gradients and of what it multiplied.
  void matrix(const T* grads, int grads_row, int out, const T* values, int values_row, int in, T* result) const {
    multiply_strided<T>({grads, 1, static_cast<size_t>(grads_row)}, out, values, values_row, in, tokens, result);
  }
  // Compute the gradients of x (unless null), W^x, W^h and b from those of the sum W^x x + W^h h + b, `size` wide.
  void input_and_state(const T* grads, int size, const T* xh, const T* weight_x, T* grad_x, T* grad_weight_x,
                       T* grad_weight_h, T* grad_bias) const {
    if (grad_x) multiply_strided<T>({grads, static_cast<size_t>(size), 1}, tokens, weight_x, m, m, size, grad_x);
    matrix(grads, size, size, xh, m + n, m, grad_weight_x);
    if (grad_weight_h) matrix(grads, size, size, xh + m, m + n, n, grad_weight_h);
    sum_tokens<T>(grads, size, tokens, size, grad_bias);
  }
};

template <typename T>
struct RruGradients : Gradients<T> {
  using Gradients<T>::tokens, Gradients<T>::m, Gradients<T>::n, Gradients<T>::p;
  const int g, layers;
  const bool scaled, vector_z;
  const T *weight_x, *weight_c, *bias_c, *s = nullptr, *z;
  const T *xh, *pre, *hidden = nullptr;
  const T *grad_pre, *grad_both, *grad_kept, *grad_hidden = nullptr, *features;
  T *grad_x = nullptr, *grad_weight_x, *grad_weight_h, *grad_bias_j;
  std::vector<T*> grad_weight_k, grad_bias_k;
  T *grad_weight_c, *grad_bias_c, *grad_weight_o, *grad_bias_o, *grad_s = nullptr, *grad_z;

  explicit RruGradients(Arguments& in)
      : Gradients<T>(in),
        g(in.size("expanded_size")),
        layers(in.size("relu_layers") - 1),
        scaled(in.flag("scaled_residual")),
        vector_z(in.flag("vector_rezero")) {
    weight_x = in.tensor<const T>("weight_x", {g, m}), weight_c = in.tensor<const T>("weight_c", {n, g});
    bias_c = in.tensor<const T>("bias_c", {n});
    if (scaled) s = in.tensor<const T>("S", {n});
    z = in.tensor<const T>("Z", {vector_z ? n : 1});
    xh = in.tensor<const T>("xh", {tokens, m + n}), pre = in.tensor<const T>("pre", {tokens, g});
    if (layers) hidden = in.tensor<const T>("hidden", {layers, tokens, g});
    grad_both = in.tensor<const T>("grad_both", {tokens, n + p}), grad_kept = in.tensor<const T>("grad_kept", {n});
    grad_pre = in.tensor<const T>("grad_pre", {tokens, g});
    if (layers) grad_hidden = in.tensor<const T>("grad_hidden", {layers, tokens, g});
    features = in.tensor<const T>("features", {tokens, g});
    if (this->wants_x) grad_x = in.tensor<T>("grad_x", {tokens, m});
    grad_weight_x = in.tensor<T>("grad_weight_x", {g, m}), grad_weight_h = in.tensor<T>("grad_weight_h", {g, n});
    grad_bias_j = in.tensor<T>("grad_bias_j", {g});
    for (int k = 0; k < layers; ++k) {
      grad_weight_k.push_back(in.tensor<T>("grad_weight_k", {g, g}));
      grad_bias_k.push_back(in.tensor<T>("grad_bias_k", {g}));
    }
    grad_weight_c = in.tensor<T>("grad_weight_c", {n, g}), grad_bias_c = in.tensor<T>("grad_bias_c", {n});
    grad_weight_o = in.tensor<T>("grad_weight_o", {p, g}), grad_bias_o = in.tensor<T>("grad_bias_o", {p});
    if (scaled) grad_s = in.tensor<T>("grad_S", {n});
    grad_z = in.tensor<T>("grad_Z", {vector_z ? n : 1});
  }

  void run() const {
    this->input_and_state(grad_pre, g, xh, weight_x, grad_x, grad_weight_x, grad_weight_h, grad_bias_j);
    for (int k = 0; k < layers; ++k) middle(k);
    this->matrix(grad_both, n + p, n, features, g, g, grad_weight_c);
    this->matrix(grad_both + n, n + p, p, features, g, g, grad_weight_o);
    sum_tokens<T>(grad_both, n + p, tokens, n, grad_bias_c);
    sum_tokens<T>(grad_both + n, n + p, tokens, p, grad_bias_o);
    residual();
  }

 private:
  void middle(int k) const {  // Eq. 2
    const size_t size = static_cast<size_t>(tokens) * g;
    const T* grads = grad_hidden + k * size;
    std::vector<T> first(k ? 0 : size);
    for (size_t i = 0; i < first.size(); ++i) first[i] = pre[i] < 0 ? 0 : pre[i];
    this->matrix(grads, g, g, k ? hidden + (k - 1) * size : first.data(), g, g, grad_weight_k[k]);
    sum_tokens<T>(grads, g, tokens, g, grad_bias_k[k]);
  }
  // Eq. 4 and 5. The gradients of W^c and b^c still lack the factor Z. That of Z sums c times its gradient; c is not
  // saved, so this goes through the gradient of W^c.
  void residual() const {
    if (!vector_z) grad_z[0] = 0;
    for (int f = 0; f < n; ++f) {
      T* line = grad_weight_c + static_cast<size_t>(f) * g;
      T through = bias_c[f] * grad_bias_c[f];
      inner_products<T, 1>(line, weight_c + static_cast<size_t>(f) * g, g, &through);
      const T factor = z[vector_z ? f : 0];
      for (int i = 0; i < g; ++i) line[i] *= factor;
      grad_bias_c[f] *= factor;
      if (vector_z)
        grad_z[f] = through;
      else
        grad_z[0] += through;
    }
    if (!scaled) return;
    for_each<T>(n, [&](auto load, auto store) {
      const Vector<T> share = sigmoid<T>(10 * load(s));
      store(grad_s, 10 * share * (1 - share) * load(grad_kept));
    });
  }
};

template <typename T>
struct LstmGradientsOfWeights : Gradients<T> {
  using Gradients<T>::tokens, Gradients<T>::m, Gradients<T>::n;
  const T *weight_x, *xh, *grad_gates;
  T *grad_x = nullptr, *grad_weight_x, *grad_weight_h, *grad_bias;

  explicit LstmGradientsOfWeights(Arguments& in) : Gradients<T>(in) {
    weight_x = in.tensor<const T>("weight_x", {4, n, m}), xh = in.tensor<const T>("xh", {tokens, m + n});
    grad_gates = in.tensor<const T>("grad_gates", {tokens, 4, n});
    if (this->wants_x) grad_x = in.tensor<T>("grad_x", {tokens, m});
    grad_weight_x = in.tensor<T>("grad_weight_x", {4, n, m}), grad_weight_h = in.tensor<T>("grad_weight_h", {4, n, n});
    grad_bias = in.tensor<T>("grad_bias", {4, n});
  }
  void run() const {
    this->input_and_state(grad_gates, 4 * n, xh, weight_x, grad_x, grad_weight_x, grad_weight_h, grad_bias);
  }
};

template <typename T>
struct GruGradientsOfWeights : Gradients<T> {
  using Gradients<T>::tokens, Gradients<T>::m, Gradients<T>::n;
  const bool reset_after;
  const T *weight_x, *xh, *inner = nullptr, *grad_gates, *grad_inner = nullptr;
  T *grad_x = nullptr, *grad_weight_x, *grad_weight_h, *grad_bias, *grad_bias_h = nullptr;

  explicit GruGradientsOfWeights(Arguments& in) : Gradients<T>(in), reset_after(in.flag("reset_after")) {
    weight_x = in.tensor<const T>("weight_x", {3, n, m}), xh = in.tensor<const T>("xh", {tokens, m + n});
    if (!reset_after) inner = in.tensor<const T>("inner", {tokens, n});
    grad_gates = in.tensor<const T>("grad_gates", {tokens, 3, n});
    if (reset_after) grad_inner = in.tensor<const T>("grad_inner", {tokens, n});
    if (this->wants_x) grad_x = in.tensor<T>("grad_x", {tokens, m});
    grad_weight_x = in.tensor<T>("grad_weight_x", {3, n, m}), grad_weight_h = in.tensor<T>("grad_weight_h", {3, n, n});
    grad_bias = in.tensor<T>("grad_bias", {3, n});
    if (reset_after) grad_bias_h = in.tensor<T>("grad_bias_h", {n});
  }
  void run() const {
    this->input_and_state(grad_gates, 3 * n, xh, weight_x, grad_x, grad_weight_x, nullptr, grad_bias);
    this->matrix(grad_gates, 3 * n, 2 * n, xh + m, m + n, n, grad_weight_h);
    T* candidate = grad_weight_h + 2 * static_cast<size_t>(n) * n;
    if (reset_after) {
      this->matrix(grad_inner, n, n, xh + m, m + n, n, candidate);
      sum_tokens<T>(grad_inner, n, tokens, n, grad_bias_h);
    } else {
      this->matrix(grad_gates + 2 * n, 3 * n, n, inner, n, n, candidate);
    }
  }
};

template <typename T>
void run(RruGradients<T>& gradients, int /*threads*/) {
  FlushDenormals flush;
  gradients.run();
}
template <typename T>
void run(LstmGradientsOfWeights<T>& gradients, int /*threads*/) {
  FlushDenormals flush;
  gradients.run();
}
template <typename T>
void run(GruGradientsOfWeights<T>& gradients, int /*threads*/) {
  FlushDenormals flush;
  gradients.run();
}
}  // namespace rru::RRU_ISA
