// Threads: floating-point mode, a barrier, and running a function on several threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "pool.h"

namespace rru::RRU_ISA {

// Treats denormal numbers as zero during its lifetime. Otherwise decaying states become denormal and slow a run down.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | (uint64_t{1} << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before_)); }

 private:
  uint64_t before_;
#endif
};

// A barrier for the threads of a team. They usually have a core each, so they spin for a while before they yield. After
// `break_up`, which is called if a thread will never arrive, waiting throws.
class Barrier {
 public:
  explicit Barrier(int members) : members_(members) {}

  void wait() {
    if (members_ == 1) return;
    constexpr int spins_before_yield = 1000;
    const int phase = phase_.load(std::memory_order_acquire);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
      waiting_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
      if (broken_.load(std::memory_order_relaxed)) throw std::runtime_error("another thread failed");
      if (spins < spins_before_yield)
        pause();
      else
        std::this_thread::yield();
    }
  }

  void break_up() { broken_.store(true, std::memory_order_relaxed); }

 private:
  const int members_;
  std::atomic<int> waiting_{0}, phase_{0};
  std::atomic<bool> broken_{false};
};

// Run work(0), work(1), ..., work(threads - 1) concurrently, with work(0) on this thread. If one throws, call
// `release`, which must wake all waiting threads, and rethrows the exception after all have ended.
template <typename Work, typename Release>
void in_parallel(int threads, const Work& work, const Release& release) {
  std::exception_ptr failure;
  std::mutex one_at_a_time;
  auto run = [&](int thread) {
    try {
      FlushDenormals flush;
      work(thread);
    } catch (...) {
      std::lock_guard<std::mutex> guard(one_at_a_time);
      if (!failure) failure = std::current_exception();
      release();
    }
  };
  if (threads == 1)
    run(0);
  else
    on_threads(threads, [](void* context, int thread) { (*static_cast<decltype(run)*>(context))(thread); }, &run);
  if (failure) std::rethrow_exception(failure);
}
}  // namespace rru::RRU_ISA
