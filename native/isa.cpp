// All scans for one instruction set. setup.py compiles this once for each, with RRU_ISA and RRU_VECTOR_BYTES defined.
#include "gru.h"
#include "mogrifier.h"
#include "rru_backward.h"

namespace rru::RRU_ISA {

template <typename T>
static void run_as(int function, const Arguments& in) {
  switch (function) {
    case 0: return rru_forward<T>(in);
    case 1: return rru_backward<T>(in);
    case 2: return lstm_forward<T>(in);
    case 3: return lstm_backward<T>(in);
    case 4: return gru_forward<T>(in);
    case 5: return gru_backward<T>(in);
    case 6: return mogrifier_forward<T>(in);
    case 7: return mogrifier_backward<T>(in);
  }
}

void run(int function, bool is_double, const int64_t* numbers, void* const* tensors, int count, int threads) {
  const Arguments in{numbers, tensors, tensors + count, threads};
  is_double ? run_as<double>(function, in) : run_as<float>(function, in);
}
}  // namespace rru::RRU_ISA
