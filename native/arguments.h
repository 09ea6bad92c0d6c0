// The arguments of a call from Python (scan/native/library.py): named numbers, and tensors as address and size.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "memory.h"

namespace rru {
// Keep a message for Python to fetch with `rru_error`.
void set_error(const char* message);
}  // namespace rru

namespace rru::RRU_ISA {

// The memory of a tensor. The address of an empty tensor can be anything.
struct Memory {
  void* address;
  int64_t bytes;
};

// The most tokens (steps times sequences) of a call, so that an int holds their number and what lies a block beyond it.
constexpr int kMostTokens = 1 << 30;

// Thrown if a function and its caller disagree about the arguments.
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Read the arguments in order. Throw Mismatch unless every number has the expected name, every tensor has the
// expected size, and none are left at the end. So a wrong call never touches memory outside a tensor.
class Arguments {
 public:
  // `names`: the names of the numbers, separated by spaces.
  Arguments(const char* names, const int64_t* numbers, const Memory* tensors, int64_t tensor_count, int threads)
      : threads(threads), names_(names), numbers_(numbers), tensors_(tensors), end_(tensors + tensor_count) {}

  const int threads;  // how many may be used, including this one

  int64_t number(const char* name) {
    const size_t length = std::strlen(name);
    const bool same = std::strncmp(names_, name, length) == 0 && (names_[length] == ' ' || names_[length] == '\0');
    if (!same) throw Mismatch(std::string("expected the number ") + name + ", got " + next_name());
    names_ += length;
    names_ += *names_ == ' ';
    return *numbers_++;
  }
  int between(const char* name, int64_t least, int64_t most) {
    const int64_t value = number(name);
    if (value < least || value > most)
      throw Mismatch(std::string(name) + " must be from " + std::to_string(least) + " to " + std::to_string(most) +
                     ", got " + std::to_string(value));
    return static_cast<int>(value);
  }
  int count(const char* name) { return between(name, 0, std::numeric_limits<int>::max()); }
  // Features. Sums and small multiples of such sizes, as in the four gates of an LSTM, still fit an int.
  int size(const char* name) { return between(name, 1, 1 << 28); }
  bool flag(const char* name) { return between(name, 0, 1) != 0; }
  uint64_t bits(const char* name) { return static_cast<uint64_t>(number(name)); }
  // A real number, passed as the bits of a double.
  double real(const char* name) {
    const uint64_t word = bits(name);
    double value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }

  template <typename T>
  T* tensor(const char* name, std::initializer_list<int64_t> shape) {
    if (tensors_ == end_) throw Mismatch(std::string("the tensor ") + name + " is missing");
    double bytes = sizeof(T);  // a double is exact for any real size and cannot overflow
    for (int64_t size : shape) bytes *= static_cast<double>(size);
    if (static_cast<double>(tensors_->bytes) != bytes) {
      char text[200];
      std::snprintf(text, sizeof text, "the tensor %s must have %.0f bytes, got %.0f", name, bytes,
                    static_cast<double>(tensors_->bytes));
      throw Mismatch(text);
    }
    if constexpr (!std::is_const_v<T>) advise_huge_pages(tensors_->address, static_cast<size_t>(tensors_->bytes));
    return static_cast<T*>((tensors_++)->address);
  }

  void done() const {
    if (*names_ != '\0') throw Mismatch("unexpected number " + next_name());
    if (tensors_ != end_) throw Mismatch(std::to_string(end_ - tensors_) + " tensors too many");
  }

 private:
  std::string next_name() const { return *names_ ? std::string(names_, std::strcspn(names_, " ")) : "none"; }

  const char* names_;
  const int64_t* numbers_;
  const Memory *tensors_, *const end_;
};
}  // namespace rru::RRU_ISA
