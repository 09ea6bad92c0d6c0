/* Run the engine on Linux without libc: what a device without an operating system needs, and qemu can run.
 *
 * Reads from standard input: the bytes of the blob and of all inputs (uint32 each), the blob, the inputs (floats, or
 * tokens as uint32). Writes the outputs after each step. */
#include "rru.h"

static long call(long number, long first, long second, long third) {
#if defined(__x86_64__)
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x1 __asm__("x1") = second, x2 __asm__("x2") = third;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
#else
  register long r7 __asm__("r7") = number, r0 __asm__("r0") = first, r1 __asm__("r1") = second, r2 __asm__("r2") = third;
  __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
  return r0;
#endif
}

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, EXIT = 60 };
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, EXIT = 93 };
#else
enum { READ = 3, WRITE = 4, EXIT = 1 };
#endif

static union {
  double alignment;
  uint8_t bytes[1 << 20];
} blob, inputs, memory;

static void fill(uint8_t *to, size_t bytes) {
  while (bytes) {
    const long count = call(READ, 0, (long)to, (long)bytes);
    if (count <= 0) call(EXIT, 2, 0, 0);
    to += count;
    bytes -= (size_t)count;
  }
}

#if defined(__x86_64__)
__attribute__((force_align_arg_pointer))
#endif
void _start(void) {
  uint32_t sizes[2];
  rru_status status;
  rru_model *model;
  size_t at = 0;
  fill((uint8_t *)sizes, sizeof sizes);
  if (sizes[0] > sizeof blob || sizes[1] > sizeof inputs) call(EXIT, 3, 0, 0);
  fill(blob.bytes, sizes[0]);
  fill(inputs.bytes, sizes[1]);
  model = rru_init(blob.bytes, sizes[0], memory.bytes, sizeof memory, &status);
  if (!model) call(EXIT, 10 + (long)status, 0, 0);
  while (at < sizes[1]) {
    const void *const input = inputs.bytes + at;
    const int tokens = rru_number(model, RRU_TOKENS) > 0;
    const float *const outputs = tokens ? rru_step_token(model, *(const uint32_t *)input) : rru_step(model, input);
    call(WRITE, 1, (long)outputs, 4 * (long)rru_number(model, RRU_LOGITS));
    at += tokens ? 4 : 4 * (size_t)rru_number(model, RRU_INPUTS);
  }
  call(EXIT, 0, 0, 0);
}

void *memset(void *to, int value, size_t count) {
  volatile uint8_t *bytes = to;
  while (count--) *bytes++ = (uint8_t)value;
  return to;
}

void *memcpy(void *to, const void *from, size_t count) {
  volatile uint8_t *bytes = to;
  const uint8_t *source = from;
  while (count--) *bytes++ = *source++;
  return to;
}

#if defined(__arm__) /* the names that its compilers call */
void __aeabi_memclr4(void *to, size_t count) { memset(to, 0, count); }
void __aeabi_memclr8(void *to, size_t count) { memset(to, 0, count); }
void __aeabi_memcpy4(void *to, const void *from, size_t count) { memcpy(to, from, count); }
void __aeabi_memcpy8(void *to, const void *from, size_t count) { memcpy(to, from, count); }
#endif
