// Export all functions for one instruction set. setup.py compiles this file once per instruction set, with RRU_ISA and
// RRU_VECTOR_BYTES defined. Names are <function>_<type>_<instruction set>, such as lstm_forward_f32_avx2.
#include "bfloat16_gradients.h"
#include "dense_gradient.h"
#include "export.h"
#include "gradients.h"
#include "gru.h"
#include "mogrifier.h"
#include "padding.h"
#include "quantized.h"
#include "rru_narrow.h"
#include "rru_wide.h"

namespace rru::RRU_ISA {

// Apply a pointwise function to a whole tensor, for tests.
template <typename T, Vector<T> (*function)(Vector<T>)>
struct Pointwise {
  const int size;
  const T* x;
  T* y;

  explicit Pointwise(Arguments& in)
      : size(in.count("size")), x(in.tensor<const T>("x", {size})), y(in.tensor<T>("y", {size})) {}
};

template <typename T, Vector<T> (*function)(Vector<T>)>
void run(Pointwise<T, function>& call, int /*threads*/) {
  FlushDenormals flush;
  for_each<T>(call.size, [&](auto load, auto store) { store(call.y, function(load(call.x))); });
}

template <typename T>
using Exp = Pointwise<T, exp<T>>;
template <typename T>
using Sigmoid = Pointwise<T, sigmoid<T>>;
template <typename T>
using Tanh = Pointwise<T, tanh<T>>;
template <typename>
using RruQuantized = QuantizedRru;
template <typename>
using LstmQuantized = QuantizedLstm;
template <typename>
using GruQuantized = QuantizedGru;

// Return 0 on success, 1 if memory or threads run out, 2 if the arguments do not match the function.
template <typename Function>
int call(const char* names, const int64_t* numbers, const Memory* tensors, int64_t tensor_count, int threads) {
  try {
    PhaseClock clock;
    Arguments in(names, numbers, tensors, tensor_count, std::max(1, threads));
    Function function(in);
    in.done();
    clock.lap(kPrepare);
    run(function, in.threads);
    return 0;
  } catch (const Mismatch& mismatch) {
    set_error(mismatch.what());
    return 2;
  } catch (...) {
    return 1;
  }
}
}  // namespace rru::RRU_ISA

#define RRU_JOIN(name, type, isa) name##_##type##_##isa
#define RRU_NAME(name, type, isa) RRU_JOIN(name, type, isa)
#define RRU_EXPORT_ONE(name, Function, type, T)                                                                          \
  RRU_EXPORT int RRU_NAME(name, type, RRU_ISA)(const char* names, const int64_t* numbers,                               \
                                               const rru::RRU_ISA::Memory* tensors, int64_t tensor_count, int threads) { \
    return rru::RRU_ISA::call<rru::RRU_ISA::Function<T>>(names, numbers, tensors, tensor_count, threads);               \
  }
#define RRU_EXPORT_BOTH(name, Function)      \
  RRU_EXPORT_ONE(name, Function, f32, float) \
  RRU_EXPORT_ONE(name, Function, f64, double)

RRU_EXPORT_BOTH(rru_forward, RruForward)
RRU_EXPORT_BOTH(rru_backward, RruBackward)
RRU_EXPORT_BOTH(rru_narrow_backward, RruNarrowBackward)
RRU_EXPORT_BOTH(rru_wide_forward, RruWideForward)
RRU_EXPORT_BOTH(rru_wide_backward, RruWideBackward)
RRU_EXPORT_BOTH(rru_gradients, RruGradients)
RRU_EXPORT_BOTH(lstm_forward, LstmForward)
RRU_EXPORT_BOTH(lstm_backward, LstmBackward)
RRU_EXPORT_BOTH(lstm_gradients, LstmGradientsOfWeights)
RRU_EXPORT_BOTH(gru_forward, GruForward)
RRU_EXPORT_BOTH(gru_backward, GruBackward)
RRU_EXPORT_BOTH(gru_gradients, GruGradientsOfWeights)
RRU_EXPORT_BOTH(dense_gradient, DenseGradient)
RRU_EXPORT_BOTH(zero_padding, ZeroPadding)
RRU_EXPORT_BOTH(mogrifier_forward, MogrifierForward)
RRU_EXPORT_BOTH(mogrifier_backward, MogrifierBackward)
#if defined(RRU_DOTS)
RRU_EXPORT_ONE(matrix_gradient, MatrixGradient, f32, float)
#endif
RRU_EXPORT_ONE(rru_quantized, RruQuantized, f32, float)
RRU_EXPORT_ONE(lstm_quantized, LstmQuantized, f32, float)
RRU_EXPORT_ONE(gru_quantized, GruQuantized, f32, float)
RRU_EXPORT_BOTH(exp, Exp)
RRU_EXPORT_BOTH(sigmoid, Sigmoid)
RRU_EXPORT_BOTH(tanh, Tanh)
