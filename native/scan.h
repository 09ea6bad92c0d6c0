// The loop over time that all scans share.
//
// A cell is a struct that reads its arguments in its constructor and has these members:
//   Scratch                memory for one step of a team's rows, constructed as Scratch(cell, rows)
//   backward               whether the loop runs from the last step to the first
//   mask_size()            number of features that dropout acts on
//   weight_bytes()         bytes of weights that a step reads
//   divides_units()        whether each thread of a team has weights of its own; not by default
//   rows_together()        the most sequences that run over time together; unlimited by default
//   pack(share)            packs a thread's share of the weights, before the loop; does nothing by default
//   begin(scratch, row)    copies a sequence's initial state, or the gradient of its last state, into scratch
//   reset(scratch, row)    sets the state before a step to that of a reset, or moves its gradient to that one's
//   step(worker, scratch)  runs one step, as products of all rows and functions of each row
//   end(scratch, row)      copies the last state, or the gradient of the initial state, out of scratch
//   finish(threads)        runs after the loop; does nothing by default
// `run` runs a cell over time. The caller computes products over all steps: see scan/native/spec.py.
#pragma once
#include <deque>
#include <limits>
#include <memory>
#include <numeric>

#include "arguments.h"
#include "bfloat16.h"
#include "dropout.h"
#include "phases.h"
#include "sparse.h"
#include "threads.h"

namespace rru::RRU_ISA {

// One step of one sequence.
struct Row {
  int index;      // the sequence's row in scratch memory
  int sequence;   // the sequence's row in a (B, ...) tensor
  int time;       // the step's index in time
  size_t token;   // the step's row in a (T, B, ...) tensor
  size_t before;  // the previous step's row in a (T, B, ...) tensor
  bool first;     // whether there is no previous step
};

// Return a row of a matrix.
template <typename T>
inline T* row_of(T* matrix, size_t row, int width) {
  return matrix + row * width;
}

// Add a row to another, and set it to zero.
template <typename T>
inline void move_row(T* from, T* to, int size) {
  for (int f = 0; f < size; ++f) to[f] += from[f], from[f] = 0;
}

// Rows of scratch memory, initially zero. They convert to an array of their addresses.
template <typename T>
class Rows {
 public:
  Rows(int count, int width) : data_(static_cast<size_t>(count) * stride(width), T(0)), at_(count) {
    for (int r = 0; r < count; ++r) at_[r] = row_of(data_.get(), r, stride(width));
  }
  T* operator[](int r) const { return at_[r]; }
  operator T* const*() const { return at_.data(); }

 private:
  // Different threads may write to different rows: these share no cache line.
  static int stride(int width) { return round_up(width, kCacheLine / sizeof(T)); }

  Buffer<T> data_;
  std::vector<T*> at_;
};

// Addresses of rows that are stored elsewhere.
template <typename T>
class RowsElsewhere {
 public:
  explicit RowsElsewhere(int count) : at_(count) {}
  const T*& operator[](int r) { return at_[r]; }
  operator const T* const*() const { return at_.data(); }

 private:
  std::vector<const T*> at_;
};

// The arguments of every scan, and values derived from them.
template <typename T>
struct Scan {
  using Value = T;
  const int steps, batch, m, n;  // T, B, features of an input, features of a state
  const bool reverse, save, has_lengths, has_resets;
  const Dropout dropout;
  const bool bfloat16, dots, tiles;  // whether products are in bfloat16, and use AVX512_BF16 or AMX
  const int min_packed_tokens, min_team_rows, max_cached_weights;  // see scan/thresholds.py
  const int p;                       // features of an output
  const int64_t* lengths = nullptr;  // (B,), with has_lengths
  const uint8_t* resets = nullptr;   // (T, B), with has_resets: whether the state is reset before a step
  const T* x;                        // (T, B, m)

  Scan(Arguments& in, bool backward)
      : steps(in.count("steps")),
        batch(in.count("batch")),
        m(in.size("input_size")),
        n(in.size("hidden_size")),
        reverse(in.flag("reverse")),
        save(in.between("save", backward, 1)),
        has_lengths(in.flag("has_lengths")),
        has_resets(in.flag("has_resets")),
        dropout{in.bits("seed"), in.real("dropout")},
        bfloat16(in.between("bfloat16", 0, std::is_same_v<T, float>)),
        dots(bfloat16 && RRU_VECTOR_BYTES == 64 && has_bfloat16_dots()),
        tiles(dots && has_bfloat16_tiles()),
        min_packed_tokens(in.count("min_packed_tokens")),
        min_team_rows(in.count("min_team_rows")),
        max_cached_weights(in.count("max_cached_weights")),
        p(in.size("output_size")) {
    if (tokens() > static_cast<size_t>(kMostTokens)) throw Mismatch("steps times sequences must be at most 2**30");
    if (has_lengths) lengths = in.tensor<const int64_t>("lengths", {batch});
    for (int b = 0; has_lengths && b < batch; ++b)
      if (lengths[b] < 1 || lengths[b] > steps) throw Mismatch("lengths must be from 1 to the number of steps");
    if (has_resets) resets = in.tensor<const uint8_t>("resets", {steps, batch});
    x = in.tensor<const T>("x", {steps, batch, m});
  }

  size_t tokens() const { return static_cast<size_t>(steps) * batch; }
  int length(int sequence) const { return has_lengths ? static_cast<int>(lengths[sequence]) : steps; }
  // Return whether the state is reset before this step.
  bool is_reset(const Row& row) const { return has_resets && resets[row.token]; }
  // Read a (B, n) part of the state of a reset, or its gradient; null without resets.
  template <typename Part>
  Part* reset_part(Arguments& in, const char* name) const {
    return has_resets ? in.tensor<Part>(name, {batch, n}) : nullptr;
  }
  // Return whether there are enough products to make packing the weights worthwhile.
  bool packs() const { return tokens() >= static_cast<size_t>(min_packed_tokens); }
  // Make a packed matrix ready for products in the scan's precision.
  void finish_packing(Packed<T>& matrix) const {
    if constexpr (std::is_same_v<T, float>)
      if (bfloat16) to_pairs(matrix);
  }
  // Copy a step's input into a row of [x, h]. With `save`, save the row for the backward pass.
  void read_input(const Row& row, T* xh, T* saved) const {
    std::copy_n(row_of(x, row.token, m), m, xh);
    if (save) std::copy_n(xh, m + n, row_of(saved, row.token, m + n));
  }
  bool divides_units() const { return false; }
  void pack(Share) {}
  int rows_together() const { return std::numeric_limits<int>::max(); }
  // Return `rows_together` for a layer with these weights. If they stay in the cache, rows may be few enough to stay
  // there too; otherwise all rows share each reading of the weights.
  int rows_beside(size_t weight_bytes) const {
    constexpr int few = 64;
    return weight_bytes <= static_cast<size_t>(max_cached_weights) ? few : std::numeric_limits<int>::max();
  }
  void finish(int /*threads*/) const {}
};

// A thread of a team that runs one step of the team's sequences. All threads of a team call the same functions:
// products, where each computes a share of the columns, and functions of rows, where each handles some rows. After each
// call they wait for each other.
template <typename T>
class Worker {
 public:
  // `sequences` must be sorted, longest first.
  // With `divides_units`, each thread of a team computes products with weights of its own.
  Worker(const Scan<T>& scan, const std::vector<int>& sequences, int mask_size, int thread, Share share, Barrier& barrier,
         bool divides_units)
      : thread(thread),
        member(share.index),
        scan_(scan),
        sequences_(sequences),
        share_(share),
        columns_(divides_units ? Share{0, 1} : share),
        barrier_(barrier),
        mask_(mask_size, T(1)) {}

  const int thread, member;  // its number among all threads, and in its team

  // Move to step s of the sequences that are long enough.
  void go_to(int s) {
    step_ = s;
    products_ = 0;
    count_ = static_cast<int>(sequences_.size());
    while (count_ > 0 && scan_.length(sequences_[count_ - 1]) <= s) --count_;
  }
  // Return whether this is the first step of all sequences, the last one of a backward loop.
  bool at_first_step() const { return step_ == 0; }
  // Return how many sequences have this step. They are rows 0 .. count() - 1 of scratch memory.
  int count() const { return count_; }
  // Return how many sequences there are, whether they have this step or not.
  int rows_in_all() const { return static_cast<int>(sequences_.size()); }

  // Call work(row) for every sequence that has this step.
  template <typename Work>
  void rows(const Work& work) {
    own_rows(work);
    arrive(kRows);
  }
  // The same without waiting: each row is always handled by the same thread.
  template <typename Work>
  void own_rows(const Work& work) const {
    for (int i = share_.index; i < count_; i += share_.size) work(row(i));
  }
  // Like `rows`, but if the threads divide the units of the cell, each calls work(row) for all these sequences.
  template <typename Work>
  void unit_rows(const Work& work) {
    if (columns_.size == share_.size) return rows(work);
    for (int i = 0; i < count_; ++i) work(row(i));
    clock_.lap(kRows);
  }
  // Call work(row) for every sequence, whether it has this step or not.
  template <typename Work>
  void all_rows(const Work& work) {
    const int rows = static_cast<int>(sequences_.size());
    for (int i = share_.index; i < rows; i += share_.size) work(row(i));
    arrive(kRows);
  }
  // Call work(row) for every sequence whose state is reset before this step, without waiting.
  template <typename Work>
  void resets(const Work& work) const {
    if (!scan_.has_resets) return;
    own_rows([&](const Row& row) {
      if (scan_.is_reset(row)) work(row);
    });
  }
  // to = the matrix's bias + from * matrix
  void product(const T* const* from, const Packed<T>& matrix, T* const* to) {
    run_product(from, matrix, nullptr, to);
    product_done();
  }
  // to = start + from * matrix
  void product(const T* const* from, const Packed<T>& matrix, const T* const* start, T* const* to) {
    run_product(from, matrix, start, to);
    product_done();
  }
  // The same for sparse rows.
  void product(const std::vector<SparseRow<T>>& from, const Packed<T>& matrix, T* const* to) {
    product(from, matrix, nullptr, to);
  }
  void product(const std::vector<SparseRow<T>>& from, const Packed<T>& matrix, const T* const* start, T* const* to) {
    multiply_sparse<T>(from.data(), count_, matrix, start, to, columns_);
    product_done();
  }
  // Compute only the entries of from * transposed(matrix) that `at` selects.
  void product_at(const T* const* from, const Packed<T>& matrix, const std::vector<SparseRow<T>>& at, T* const* to) {
    multiply_at<T>(from, count_, matrix, at.data(), to, columns_);
    product_done();
  }
  // Wait for the other threads, if they divide the units and did not wait after the last product.
  void meet() {
    if (columns_.size != share_.size) barrier_.wait();
    clock_.lap(kRows);
  }

  // Return the row's dropout mask for this step; all ones without dropout. The next call overwrites it.
  const T* mask(const Row& row) { return mask(row, 0, static_cast<int>(mask_.size())); }
  // The same for `size` features from `first` on, a multiple of Dropout::together.
  const T* mask(const Row& row, int first, int size) {
    if (scan_.dropout.active()) scan_.dropout.mask(row.time, row.sequence, first, size, mask_.data());
    return mask_.data();
  }

 private:
  Row row(int i) const {
    const int sequence = sequences_[i], time = scan_.reverse ? scan_.length(sequence) - 1 - step_ : step_;
    const size_t batch = scan_.batch, token = time * batch + sequence;
    return {i, sequence, time, token, scan_.reverse ? token + batch : token - batch, step_ == 0};
  }

  void run_product(const T* const* from, const Packed<T>& matrix, const T* const* start, T* const* to) {
    if constexpr (std::is_same_v<T, float>)
      if (matrix.halves) return multiply_pairs(from, count_, matrix, start, to, columns_, scan_.dots, scan_.tiles, rounded_);
    multiply<T>(from, count_, matrix, start, to, columns_);
  }
  void product_done() {
    if (columns_.size == share_.size) barrier_.wait();
    clock_.lap(kFirstProduct + products_++);
  }

  // Wait for the other threads of the team, and count the time since the last call for `phase`.
  void arrive(int phase) {
    barrier_.wait();
    clock_.lap(phase);
  }

  const Scan<T>& scan_;
  const std::vector<int>& sequences_;
  const Share share_, columns_;  // its share of the rows, and of the columns of a product
  Barrier& barrier_;
  std::vector<T> mask_;
  RoundedRows rounded_;
  int step_ = 0, count_ = 0, products_ = 0;
  PhaseClock clock_;
};

// Distribute the batch over teams of threads. If each thread gets enough rows to make good use of the weights it
// reads, each thread is its own team. Otherwise all threads form one team and share the columns of the weights. A
// team's longest sequences come first, so the sequences that are still running are always its first rows.
struct Teams {
  int members;
  std::vector<std::vector<int>> sequences;

  template <typename T>
  Teams(const Scan<T>& scan, int threads, size_t weight_bytes) {
    const bool few_rows = scan.batch < static_cast<int64_t>(scan.min_team_rows) * threads;
    const bool shared = few_rows && weight_bytes > static_cast<size_t>(scan.max_cached_weights);
    members = shared ? threads : 1;
    sequences.resize(shared ? 1 : std::max(1, std::min(threads, scan.batch)));
    std::vector<int> all(scan.batch);
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return scan.length(a) > scan.length(b); });
    for (int i = 0; i < scan.batch; ++i) sequences[i % sequences.size()].push_back(all[i]);
  }

  int threads() const { return members * static_cast<int>(sequences.size()); }
};

// Divide sequences into equal blocks of at most `most`, in order.
inline std::vector<std::vector<int>> in_blocks(const std::vector<int>& sequences, int most) {
  const int size = static_cast<int>(sequences.size()), blocks = std::max(1, (size - 1) / most + 1);
  std::vector<std::vector<int>> divided;
  for (int b = 0; b < blocks; ++b) {
    const Share share{b, blocks};
    divided.emplace_back(sequences.begin() + share.first(size), sequences.begin() + share.last(size));
  }
  return divided;
}

// Run a cell over time on at most `threads` threads.
template <typename Cell>
void run(Cell& cell, int threads) {
  using T = typename Cell::Value;
  const Teams teams(cell, threads, cell.weight_bytes());
  std::deque<typename Cell::Scratch> scratches;
  std::vector<std::unique_ptr<Barrier>> barriers;
  for (const auto& sequences : teams.sequences) {
    scratches.emplace_back(cell, std::min(static_cast<int>(sequences.size()), cell.rows_together()));
    barriers.push_back(std::make_unique<Barrier>(teams.members));
  }
  Barrier packed(teams.threads());
  auto work = [&](int thread) {
    {
      PhaseClock clock;
      cell.pack({thread, teams.threads()});
      packed.wait();
      if (thread == 0) clock.lap(kPrepare);
    }
    const int team = thread / teams.members;
    typename Cell::Scratch& scratch = scratches[team];
    const Share share{thread % teams.members, teams.members};
    for (const std::vector<int>& sequences : in_blocks(teams.sequences[team], cell.rows_together())) {
      Worker<T> worker(cell, sequences, cell.mask_size(), thread, share, *barriers[team], cell.divides_units());
      const int steps = sequences.empty() ? 0 : cell.length(sequences[0]);
      worker.all_rows([&](const Row& row) { cell.begin(scratch, row); });
      for (int s = 0; s < steps; ++s) {
        auto reset = [&](const Row& row) { cell.reset(scratch, row); };
        worker.go_to(Cell::backward ? steps - 1 - s : s);
        if (!Cell::backward) worker.resets(reset);
        cell.step(worker, scratch);
        if (Cell::backward) worker.resets(reset);
      }
      worker.all_rows([&](const Row& row) { cell.end(scratch, row); });
    }
  };
  in_parallel(teams.threads(), work, [&] {
    packed.break_up();
    for (auto& barrier : barriers) barrier->break_up();
  });
  PhaseClock clock;
  cell.finish(threads);
  clock.lap(kFinish);
}
}  // namespace rru::RRU_ISA
