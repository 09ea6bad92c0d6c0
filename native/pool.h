// Threads that wait for work. Starting a thread takes up to a millisecond, waking one that waits a few microseconds.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace rru {

// Tells the processor that this thread is spinning.
inline void pause() {
#if defined(__SSE__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spin until the condition holds, but not for long. Return whether it holds.
template <typename Condition>
bool spin_until(const Condition& condition) {
  constexpr int spins = 2000;  // tens of microseconds
  for (int i = 0; i < spins; ++i) {
    if (condition()) return true;
    pause();
  }
  return condition();
}

// A number of threads for one caller at a time. Threads are started when they are first needed. A thread without work
// spins briefly, then sleeps.
class Pool {
 public:
  using Task = void (*)(void* context, int thread);

  Pool() = default;
  Pool(const Pool&) = delete;
  ~Pool() {
    for (auto& worker : workers_) worker->give(kStop);
    for (auto& worker : workers_) worker->thread.join();
  }

  // Call task(context, 0) on this thread and task(context, 1), ..., task(context, threads - 1) on others, and return
  // when all have returned. A task must not throw. Throw std::system_error or std::bad_alloc if a thread cannot be
  // started; then no task has run.
  void run(int threads, Task task, void* context) {
    while (static_cast<int>(workers_.size()) < threads - 1) add_worker();
    task_ = task, context_ = context;
    running_.store(threads - 1, std::memory_order_relaxed);
    for (int i = 0; i < threads - 1; ++i) workers_[i]->give(kWork);
    task(context, 0);
    auto finished = [&] { return running_.load(std::memory_order_acquire) == 0; };
    if (spin_until(finished)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    all_finished_.wait(lock, finished);
  }

 private:
  enum Order { kNone, kWork, kStop };

  struct Worker {
    std::atomic<int> order{kNone};
    std::mutex mutex;
    std::condition_variable ordered;
    std::thread thread;

    void give(Order given) {
      {
        std::lock_guard<std::mutex> guard(mutex);
        order.store(given, std::memory_order_release);
      }
      ordered.notify_one();
    }
    Order wait() {
      auto is_ordered = [&] { return order.load(std::memory_order_acquire) != kNone; };
      if (!spin_until(is_ordered)) {
        std::unique_lock<std::mutex> lock(mutex);
        ordered.wait(lock, is_ordered);
      }
      return static_cast<Order>(order.exchange(kNone, std::memory_order_acquire));
    }
  };

  void add_worker() {
    auto worker = std::make_unique<Worker>();
    workers_.reserve(workers_.size() + 1);
    worker->thread = std::thread(&Pool::work, this, worker.get(), static_cast<int>(workers_.size()) + 1);
    workers_.push_back(std::move(worker));
  }

  void work(Worker* worker, int number) {
    while (worker->wait() == kWork) {
      task_(context_, number);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
      std::lock_guard<std::mutex> guard(mutex_);
      all_finished_.notify_one();
    }
  }

  std::vector<std::unique_ptr<Worker>> workers_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int> running_{0};
  std::mutex mutex_;
  std::condition_variable all_finished_;
};

// `Pool::run` with the pool of this process, or with new threads if another caller uses it.
void on_threads(int threads, Pool::Task task, void* context);
}  // namespace rru
