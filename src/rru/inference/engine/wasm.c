/* The engine as a WebAssembly module: the functions of rru.h, and memory for what a page gives them.
 * `make engine` compiles it (tools/build_engine.py). */
#include "rru.c"

extern uint8_t __heap_base;
static uint8_t *end; /* of the memory in use */

/* Return `bytes` of new memory, aligned to 16 bytes; NULL if there is not enough. Nothing is ever given back. */
void *reserve(size_t bytes) {
  uint8_t *const start = (uint8_t *)padded((uintptr_t)(end ? end : &__heap_base), 16);
  const size_t needed = padded((uintptr_t)start + bytes, 65536) / 65536, pages = __builtin_wasm_memory_size(0);
  if (needed > pages && __builtin_wasm_memory_grow(0, needed - pages) == (size_t)-1) return NULL;
  end = start + bytes;
  return start;
}

/* The compiler may call these two; there is no libc that has them. */
void *memset(void *to, int value, size_t count) {
  uint8_t *const bytes = to;
  size_t i;
  for (i = 0; i < count; ++i) bytes[i] = (uint8_t)value;
  return to;
}

void *memcpy(void *to, const void *from, size_t count) {
  uint8_t *const bytes = to;
  const uint8_t *const source = from;
  size_t i;
  for (i = 0; i < count; ++i) bytes[i] = source[i];
  return to;
}
