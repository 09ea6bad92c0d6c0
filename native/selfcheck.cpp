// Check a built library on its target machine, which may have neither Python nor PyTorch. Replay recorded calls of
// its functions (tools/record_calls.py) with every instruction set of this processor, and compares the results.
//
//   selfcheck <library> <recorded calls>
//
// Exits with 0 if all results agree, 1 if any differ, 2 if the files cannot be used.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#if defined(_WIN32)
#include <windows.h>
static void* open_library(const char* path) { return reinterpret_cast<void*>(LoadLibraryA(path)); }
static void* find(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}
#else
#include <dlfcn.h>
static void* open_library(const char* path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static void* find(void* library, const char* name) { return dlsym(library, name); }
#endif

struct Memory {  // as in arguments.h
  void* address;
  int64_t bytes;
};
using Function = int (*)(const char* names, const int64_t* numbers, const Memory* tensors, int64_t count, int threads);
using Text = const char* (*)();

[[noreturn]] static void fail(const std::string& message) {
  std::fprintf(stderr, "selfcheck: %s\n", message.c_str());
  std::exit(2);
}

struct Tensor {
  std::vector<char> before, after;  // `after` is empty if the call does not write it
};

struct Call {
  std::string function, names;  // such as lstm_forward_f32, without the instruction set
  std::vector<int64_t> numbers;
  int64_t threads;
  std::vector<Tensor> tensors;
};

class Reader {
 public:
  explicit Reader(const char* path) : file_(path, std::ios::binary) {
    if (!file_) fail(std::string("cannot open ") + path);
  }
  int64_t integer() {
    int64_t value;
    bytes(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::vector<char> block() {
    const int64_t size = integer();
    if (size < 0 || size > int64_t{1} << 32) fail("the recorded calls are damaged");
    std::vector<char> content(static_cast<size_t>(size));
    bytes(content.data(), content.size());
    return content;
  }
  std::string text() {
    const std::vector<char> content = block();
    return {content.begin(), content.end()};
  }
  Call call() {
    Call call{text(), text(), {}, 0, {}};
    call.numbers.resize(static_cast<size_t>(integer()));
    for (int64_t& number : call.numbers) number = integer();
    call.threads = integer();
    call.tensors.resize(static_cast<size_t>(integer()));
    for (Tensor& tensor : call.tensors) tensor = {block(), block()};
    return call;
  }

 private:
  void bytes(char* to, size_t size) {
    if (size && !file_.read(to, static_cast<std::streamsize>(size))) fail("the recorded calls end too early");
  }
  std::ifstream file_;
};

// Return the largest difference between two tensors, relative to the largest expected value. Infinite if at some index
// only one of them is finite.
template <typename T>
static double difference(const std::vector<char>& got, const std::vector<char>& expected) {
  double largest = 0, scale = 1e-30;
  for (size_t at = 0; at + sizeof(T) <= expected.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, &got[at], sizeof a);
    std::memcpy(&b, &expected[at], sizeof b);
    if (std::memcmp(&a, &b, sizeof a) == 0) continue;  // also if both are NaN
    if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
    largest = std::fmax(largest, std::fabs(static_cast<double>(a) - static_cast<double>(b)));
    scale = std::fmax(scale, std::fabs(static_cast<double>(b)));
  }
  return largest / std::fmax(scale, 1e-3);
}

// Call a function of an instruction set. Return the largest difference between its results and the recorded ones.
static double replay(void* library, const Call& call, const std::string& instruction_set) {
  const std::string name = call.function + "_" + instruction_set;
  const auto function = reinterpret_cast<Function>(find(library, name.c_str()));
  if (!function) fail("the library has no function " + name);
  std::vector<std::vector<char>> tensors;
  std::vector<Memory> memory;
  for (const Tensor& tensor : call.tensors) tensors.push_back(tensor.before);
  for (std::vector<char>& tensor : tensors) memory.push_back({tensor.data(), static_cast<int64_t>(tensor.size())});
  const auto count = static_cast<int64_t>(memory.size());
  if (const int failed =
          function(call.names.c_str(), call.numbers.data(), memory.data(), count, static_cast<int>(call.threads)))
    fail(name + " returned " + std::to_string(failed) + ": " + reinterpret_cast<Text>(find(library, "rru_error"))());
  const bool is_double = call.function.find("_f64") != std::string::npos;
  double largest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& recorded = call.tensors[i];
    const std::vector<char>& expected = recorded.after.empty() ? recorded.before : recorded.after;
    largest = std::fmax(largest, is_double ? difference<double>(tensors[i], expected)
                                           : difference<float>(tensors[i], expected));
  }
  return largest;
}

int main(int argc, char** argv) {
  if (argc != 3) fail("expected a library and a file of recorded calls");
  void* library = open_library(argv[1]);
  if (!library) fail(std::string("cannot open ") + argv[1]);
  const auto available = reinterpret_cast<Text>(find(library, "rru_instruction_sets"));
  if (!available) fail(std::string(argv[1]) + " is not the native library of rru");
  Reader reader(argv[2]);
  std::vector<Call> calls;
  for (int64_t left = reader.integer(); left > 0; --left) calls.push_back(reader.call());
  if (calls.empty()) fail("there are no recorded calls");
  bool right = true;
  std::istringstream instruction_sets(available());
  for (std::string instruction_set; instruction_sets >> instruction_set;) {
    std::map<std::string, std::pair<int, double>> found;  // function to calls and largest difference
    for (const Call& call : calls) {
      auto& [count, largest] = found[call.function];
      largest = std::fmax(largest, replay(library, call, instruction_set));
      ++count;
    }
    for (const auto& [name, result] : found) {
      const bool good = result.second <= (name.find("_f64") != std::string::npos ? 1e-9 : 1e-3);
      std::printf("%-9s %-24s %3d calls, largest difference %.1e%s\n", instruction_set.c_str(), name.c_str(),
                  result.first, result.second, good ? "" : "  WRONG");
      right = right && good;
    }
  }
  return right ? 0 : 1;
}
