// Memory for the kernels: aligned to cache lines, and in huge pages where the system has them.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace rru::RRU_ISA {

constexpr size_t kCacheLine = 64, kHugePage = size_t{2} << 20;

// Asks for huge pages in a range of memory. New memory then costs one page fault per 2 MB instead of 512.
inline void advise_huge_pages(void* address, size_t bytes) {
#if defined(__linux__)
  const uintptr_t start = (reinterpret_cast<uintptr_t>(address) + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + bytes) / kHugePage * kHugePage;
  if (start < end) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);  // only advice: may fail
#else
  static_cast<void>(address), static_cast<void>(bytes);
#endif
}

// An array in aligned memory, not initialised. A load of a register that crosses a cache line takes twice as long.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t size = 0) : size_(size) {
    if (size > std::numeric_limits<size_t>::max() / (2 * sizeof(T))) throw std::bad_alloc();
    if (size == 0) return;
    data_ = static_cast<T*>(operator new(bytes(), alignment()));
    advise_huge_pages(data_, bytes());
  }
  Buffer(size_t size, T value) : Buffer(size) { std::fill_n(data_, size, value); }
  Buffer(Buffer&& other) noexcept : size_(other.size_), data_(other.data_) { other.data_ = nullptr; }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_) operator delete(data_, alignment());
  }

  T* get() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }

 private:
  size_t bytes() const { return size_ * sizeof(T); }
  std::align_val_t alignment() const { return std::align_val_t{bytes() < 2 * kHugePage ? kCacheLine : kHugePage}; }

  size_t size_;
  T* data_ = nullptr;
};
}  // namespace rru::RRU_ISA
