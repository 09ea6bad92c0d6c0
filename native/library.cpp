// Exports that do not depend on an instruction set: the list of available instruction sets, and the last error.
#include <cstdio>
#if !defined(_WIN32)
#include <unistd.h>
#endif

#include "export.h"
#include "phases.h"
#include "pool.h"
#if defined(RRU_X86)
#include "processor.h"
#endif

namespace rru {
PhaseTimes phase_times;

static thread_local char last_error[256];

static int process() {
#if defined(_WIN32)
  return 0;
#else
  return getpid();
#endif
}

// The pool of this process. It is never destroyed, so that waiting threads do not delay the end of the process.
struct SharedPool {
  const int owner = process();
  Pool pool;
  std::mutex used;
};

static SharedPool& find_pool() {
  static std::atomic<SharedPool*> current{nullptr};
  SharedPool* found = current.load();
  if (found && found->owner == process()) return *found;
  auto made = std::make_unique<SharedPool>();  // a fork has none of its parent's threads, so it needs its own
  return current.compare_exchange_strong(found, made.get()) ? *made.release() : *found;
}

void on_threads(int threads, Pool::Task task, void* context) {
  SharedPool& shared = find_pool();
  std::unique_lock<std::mutex> lock(shared.used, std::try_to_lock);
  if (lock.owns_lock()) return shared.pool.run(threads, task, context);
  Pool().run(threads, task, context);
}

static std::atomic<bool> dots_allowed{true};

bool has_bfloat16_dots() {
#if defined(RRU_X86)
  static const bool found = Processor().avx512_bf16;
  return found && dots_allowed;
#else
  return false;
#endif
}

void set_error(const char* message) { std::snprintf(last_error, sizeof last_error, "%s", message); }
}  // namespace rru

// Return the compiled instruction sets that this processor supports, best last, separated by spaces.
RRU_EXPORT const char* rru_instruction_sets() {
#if defined(RRU_X86)
  const rru::Processor processor;
  if (processor.avx512) return "portable avx2 avx512";
  if (processor.avx2) return "portable avx2";
#endif
  return "portable";
}

// Return whether code for AVX-512 uses AVX512_BF16. Tests can switch that off.
RRU_EXPORT int rru_bfloat16_dots() { return rru::has_bfloat16_dots(); }
RRU_EXPORT void rru_allow_bfloat16_dots(int allowed) { rru::dots_allowed = allowed != 0; }

// Return the error message of the last call on this thread that returned 2.
RRU_EXPORT const char* rru_error() { return rru::last_error; }

// Starts to time the phases of all calls (phases.h). `rru_phases` copies their seconds and stops.
RRU_EXPORT void rru_time_phases() {
  for (auto& seconds : rru::phase_times.seconds) seconds = 0;
  rru::phase_times.on = true;
}

RRU_EXPORT int rru_phases(double* seconds, int size) {
  rru::phase_times.on = false;
  for (int i = 0; i < size && i < rru::kPhases; ++i) seconds[i] = rru::phase_times.seconds[i];
  return rru::kPhases;
}
