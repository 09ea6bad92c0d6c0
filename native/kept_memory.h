// Large memory that calls use one after the other, whatever their instruction set.
#pragma once
#include <cstddef>

namespace rru {
constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages in a range of memory. New memory then costs one page fault per 2 MB instead of 512.
void advise_huge_pages(void* address, size_t bytes);

// Large memory in huge pages. It is kept after use, up to a limit, for later calls that need about the same size: the system
// clears fresh memory page by page, which takes a noticeable part of a call, and in a virtual machine even more.
constexpr size_t kMinKept = 2 * kHugePage, kMaxKept = size_t{256} << 20;
void* take_memory(size_t bytes);
void give_back_memory(void* address, size_t bytes) noexcept;
}  // namespace rru
