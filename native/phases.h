// Where the time of calls goes, for `python -m benchmarks.layers --phases`.
#pragma once
#include <atomic>
#include <chrono>

namespace rru {

// What the time is spent on: everything before the loop over time, functions of rows, everything after the loop, and
// each product of a step, in order.
enum Phase { kPrepare, kRows, kFinish, kFirstProduct, kPhases = kFirstProduct + 16 };

// Seconds of each phase, summed over all calls and threads since `rru_time_phases`.
struct PhaseTimes {
  std::atomic<bool> on{false};
  std::atomic<double> seconds[kPhases];
};
extern PhaseTimes phase_times;

// Measure one thread. Read no clock unless `rru_time_phases` switched the measurement on.
class PhaseClock {
 public:
  PhaseClock() : on_(phase_times.on.load(std::memory_order_relaxed)) {
    if (on_) last_ = std::chrono::steady_clock::now();
  }
  ~PhaseClock() {
    for (int i = 0; on_ && i < kPhases; ++i) {
      double before = phase_times.seconds[i].load(std::memory_order_relaxed);
      while (!phase_times.seconds[i].compare_exchange_weak(before, before + seconds_[i])) continue;
    }
  }
  PhaseClock(const PhaseClock&) = delete;

  // Add the time since the last call to a phase.
  void lap(int phase) {
    if (!on_) return;
    const auto now = std::chrono::steady_clock::now();
    seconds_[phase < kPhases ? phase : kPhases - 1] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  const bool on_;
  std::chrono::steady_clock::time_point last_;
  double seconds_[kPhases] = {};
};
}  // namespace rru
