// The library's face: which instruction sets this machine has, and one entry for all scans.
#include <cstdint>

#if defined(_WIN32)
#define RRU_EXPORT extern "C" __declspec(dllexport)
#else
#define RRU_EXPORT extern "C" __attribute__((visibility("default")))
#endif

#define RRU_DECLARE(isa)                                                                       \
  namespace rru::isa {                                                                         \
  void run(int function, bool is_double, const int64_t* numbers, void* const* tensors, int count, int threads); \
  }
RRU_DECLARE(portable)
#if defined(RRU_X86)
RRU_DECLARE(avx2)
RRU_DECLARE(avx512)
#endif

// 0: portable, 1: AVX2, 2: AVX-512; the best this processor can run.
RRU_EXPORT int rru_best_isa() {
#if defined(RRU_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}

// Runs a scan; 0 if all went well, 1 if memory or threads ran out.
RRU_EXPORT int rru_run([[maybe_unused]] int isa, int function, int is_double, const int64_t* numbers, void* const* tensors,
                       int count, int threads) {
  try {
#if defined(RRU_X86)
    if (isa == 2) return rru::avx512::run(function, is_double, numbers, tensors, count, threads), 0;
    if (isa == 1) return rru::avx2::run(function, is_double, numbers, tensors, count, threads), 0;
#endif
    return rru::portable::run(function, is_double, numbers, tensors, count, threads), 0;
  } catch (...) {
    return 1;
  }
}
