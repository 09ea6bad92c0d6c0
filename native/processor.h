// Detects the features of this x86 processor with CPUID. `__builtin_cpu_supports` needs a runtime that Zig lacks.
#pragma once
#include <cpuid.h>

#include <cstdint>

namespace rru {

struct Processor {
  bool intel = false;
  bool avx2 = false;    // with FMA
  bool avx512 = false;  // F, DQ and VL
  bool avx512_bf16 = false;
  bool amx_bf16 = false;

  Processor() {
    unsigned a, b, c, d;
    intel = __get_cpuid(0, &a, &b, &c, &d) && b == 0x756e6547;  // "Genu"
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    const bool fma = bit(c, 12), saves_registers = bit(c, 27), avx = bit(c, 28);
    if (!fma || !saves_registers || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    const uint64_t saved = saved_registers();  // those that the system saves when it switches threads
    avx2 = bit(b, 5) && (saved & 0x06) == 0x06;
    avx512 = avx2 && bit(b, 16) && bit(b, 17) && bit(b, 31) && (saved & 0xe6) == 0xe6;
    const bool amx = bit(d, 22) && bit(d, 24) && (saved & 0x60000) == 0x60000;
    avx512_bf16 = avx512 && bit(b, 30) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && bit(a, 5);  // 30: BW
    amx_bf16 = amx && avx512_bf16;
  }

 private:
  static bool bit(unsigned word, int index) { return (word >> index) & 1; }
  static uint64_t saved_registers() {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
  }
};
}  // namespace rru
