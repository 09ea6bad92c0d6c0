// Exports that do not depend on an instruction set: the list of available instruction sets, and the last error.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#if !defined(_WIN32)
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#endif

#include "export.h"
#include "kept_memory.h"
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

// OpenMP by GCC's calls, if PyTorch's operations run on its threads. They spin for milliseconds after each operation, and
// threads of a pool would have to share their cores meanwhile.
struct OpenMp {
  void (*parallel)(void (*region)(void*), void* data, unsigned threads, unsigned flags);
  int (*thread_number)();
  int (*team_size)();
  int owner;  // the process: a fork has none of its parent's threads
};
static OpenMp openmp{};

// `Pool::run` on OpenMP's threads. Return whether the tasks have run: not without OpenMP, or if it gives fewer threads, as
// in a region of the caller.
static bool run_by_openmp(int threads, Pool::Task task, void* context) {
  if (!openmp.parallel || openmp.owner != process()) return false;
  thread_local int started = 1;
  if (threads > started) Pool().run(threads, [](void*, int) {}, nullptr);  // throws, but OpenMP would end the process
  started = std::max(started, threads);
  struct Call {
    const int threads;
    const Pool::Task task;
    void* const context;
    bool complete;  // written by the calling thread
  } call{threads, task, context, false};
  auto region = [](void* data) {
    Call& call = *static_cast<Call*>(data);
    const int number = openmp.thread_number();
    const bool complete = openmp.team_size() == call.threads;
    if (number == 0) call.complete = complete;
    if (complete) call.task(call.context, number);
  };
  openmp.parallel(region, &call, static_cast<unsigned>(threads), 0);
  return call.complete;
}

void on_threads(int threads, Pool::Task task, void* context) {
  if (run_by_openmp(threads, task, context)) return;
  SharedPool& shared = find_pool();
  std::unique_lock<std::mutex> lock(shared.used, std::try_to_lock);
  if (lock.owns_lock()) return shared.pool.run(threads, task, context);
  Pool().run(threads, task, context);
}

void advise_huge_pages(void* address, size_t bytes) {
#if defined(__linux__)
  const uintptr_t start = (reinterpret_cast<uintptr_t>(address) + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + bytes) / kHugePage * kHugePage;
  if (start < end) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);  // only advice: may fail
#else
  static_cast<void>(address), static_cast<void>(bytes);
#endif
}

// What `give_back_memory` keeps. It is never destroyed, because threads may still use it when the process ends.
struct KeptMemory {
  struct Block {
    void* address;
    size_t bytes;
  };
  std::mutex used;  // only ever tried: in a fork it may stay locked, and then nothing is kept
  std::deque<Block> blocks;
  size_t total = 0;
};
static KeptMemory& kept_memory() {
  static KeptMemory& kept = *new KeptMemory;
  return kept;
}

// Round up to three binary digits, so that calls with sequences of many lengths use the same memory.
static size_t rounded_up(size_t bytes) {
  size_t unit = 1;
  while (unit < bytes >> 3) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

void* take_memory(size_t bytes) {
  bytes = rounded_up(bytes);
  KeptMemory& kept = kept_memory();
  if (std::unique_lock<std::mutex> lock(kept.used, std::try_to_lock); lock.owns_lock())
    for (auto block = kept.blocks.begin(); block != kept.blocks.end(); ++block)
      if (block->bytes == bytes) {
        void* address = block->address;
        kept.blocks.erase(block);
        kept.total -= bytes;
        return address;
      }
  void* address = operator new(bytes, std::align_val_t{kHugePage});
  advise_huge_pages(address, bytes);
  return address;
}

void give_back_memory(void* address, size_t bytes) noexcept {
  bytes = rounded_up(bytes);
  auto free = [](void* memory) { operator delete(memory, std::align_val_t{kHugePage}); };
  KeptMemory& kept = kept_memory();
  std::unique_lock<std::mutex> lock(kept.used, std::try_to_lock);
  if (!lock.owns_lock() || bytes > kMaxKept) return free(address);
  try {
    kept.blocks.push_back({address, bytes});
  } catch (...) {
    return free(address);
  }
  for (kept.total += bytes; kept.total > kMaxKept; kept.blocks.pop_front()) {
    kept.total -= kept.blocks.front().bytes;
    free(kept.blocks.front().address);
  }
}

#if defined(RRU_X86)
// Ask the system to let this process use the registers of AMX.
static bool may_use_tiles() {
#if defined(__linux__)
  constexpr long request = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
  return false;
#endif
}

// What multiplies bfloat16: 0 nothing special, 1 AVX512_BF16, 2 AMX too.
struct Bfloat16 {
  int found = 0;
  std::atomic<int> most{2};
  Bfloat16() {
    const Processor processor;
    if (processor.avx512_bf16) found = processor.amx_bf16 && may_use_tiles() ? 2 : 1;
    if (found == 1 && processor.intel) most = 0;  // its dot products take 1.6 times as long as float32
  }
  int used() const { return std::min(found, most.load()); }
};
static Bfloat16& bfloat16() {
  static Bfloat16 instructions;
  return instructions;
}
static int bfloat16_used() { return bfloat16().used(); }
static int use_bfloat16(int most) { return bfloat16().most.exchange(most); }
#else
static int bfloat16_used() { return 0; }
static int use_bfloat16(int most) { return most; }
#endif

bool has_bfloat16_dots() { return bfloat16_used() > 0; }
bool has_bfloat16_tiles() { return bfloat16_used() > 1; }

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

// Return what code for AVX-512 uses to multiply bfloat16: 0 nothing special, 1 AVX512_BF16, 2 AMX too.
RRU_EXPORT int rru_bfloat16() { return rru::bfloat16_used(); }
// Use at most these instructions, if the processor has them, even where they are slow; return the limit before. For tests.
RRU_EXPORT int rru_use_bfloat16(int most) { return rru::use_bfloat16(most); }

// Run on the threads of OpenMP from now on, whose functions GOMP_parallel, omp_get_thread_num and omp_get_num_threads these
// are, or, without them, on threads of a pool. No scan may run meanwhile.
RRU_EXPORT void rru_use_openmp(decltype(rru::OpenMp::parallel) parallel, int (*thread_number)(), int (*team_size)()) {
  rru::openmp = {parallel, thread_number, team_size, rru::process()};
}

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
