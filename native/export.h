// Marks the functions that the library exports: C functions, looked up by name.
#pragma once

#if defined(_WIN32)
#define RRU_EXPORT extern "C" __declspec(dllexport)
#else
#define RRU_EXPORT extern "C" __attribute__((visibility("default")))
#endif
