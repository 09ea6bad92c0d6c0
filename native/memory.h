// Memory for the kernels: aligned to cache lines, and in huge pages where the system has them.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>

#include "kept_memory.h"

namespace rru::RRU_ISA {

constexpr size_t kCacheLine = 64;

// An array in aligned memory, not initialised. A load of a register that crosses a cache line takes twice as long.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t size = 0) : size_(size) {
    if (size > std::numeric_limits<size_t>::max() / (2 * sizeof(T))) throw std::bad_alloc();
    if (size == 0) return;
    data_ = static_cast<T*>(bytes() < kMinKept ? operator new(bytes(), alignment) : take_memory(bytes()));
  }
  Buffer(size_t size, T value) : Buffer(size) { std::fill_n(data_, size, value); }
  Buffer(Buffer&& other) noexcept : size_(other.size_), data_(other.data_) { other.data_ = nullptr; }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (!data_) return;
    if (bytes() < kMinKept)
      operator delete(data_, alignment);
    else
      give_back_memory(data_, bytes());
  }

  T* get() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }

 private:
  size_t bytes() const { return size_ * sizeof(T); }
  static constexpr std::align_val_t alignment{kCacheLine};

  size_t size_;
  T* data_ = nullptr;
};

// The same for calls that need different sizes. What it held is lost when it grows.
template <typename T>
class GrowingBuffer {
 public:
  T* at_least(size_t size) {
    if (!buffer_ || buffer_->size() < size) buffer_.emplace(size);
    return get();
  }
  T* get() const { return buffer_ ? buffer_->get() : nullptr; }

 private:
  std::optional<Buffer<T>> buffer_;
};
}  // namespace rru::RRU_ISA
