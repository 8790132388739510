// SPDX-License-Identifier: MPL-2.0
//
// Declarations that the parts of the check share.
#pragma once
#include "hip.h"
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

// Ends the program if the condition does not hold.
#define EXPECT(condition) \
  do { \
    if (condition) break; \
    fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    exit(1); \
  } while (false)
#define OK(call) EXPECT((call) == hipSuccess)

// A code object for the GPU target `arch`, complete as far as the software device reads it.
std::vector<unsigned char> code_object(const std::string &arch, const std::vector<std::string> &kernels);

// A module with all kernels of this program.
class Kernels {
 public:
  Kernels();
  ~Kernels();
  hipFunction_t operator[](const std::string &name) const;

 private:
  std::vector<unsigned char> image;
  hipModule_t module = nullptr;
};

struct Shape {
  unsigned grid_x, grid_y, block;
};
template <class... A>
hipError_t launch(hipFunction_t kernel, Shape shape, hipStream_t stream, A... arguments) {
  void *pointers[] = {&arguments...};
  return hipModuleLaunchKernel(kernel, shape.grid_x, shape.grid_y, 1, shape.block, 1, 1, 0, stream, pointers,
                               nullptr);
}

// An array in device memory.
template <class T>
class Array {
 public:
  explicit Array(size_t n) : n(n) { OK(hipMalloc(&at, n * sizeof(T))); }
  explicit Array(const std::vector<T> &values) : Array(values.size()) {
    OK(hipMemcpy(at, values.data(), n * sizeof(T), hipMemcpyHostToDevice));
  }
  Array(const Array &) = delete;
  ~Array() { hipFree(at); }
  T *data() const { return (T *)at; }
  std::vector<T> read() const {
    std::vector<T> values(n);
    OK(hipMemcpy(values.data(), at, n * sizeof(T), hipMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t n;
  void *at = nullptr;
};

void run_kernels();                   // the kernels of the plugin; prints their sums
void run_selftest();                  // the primitives of the prelude
bool caught(const std::string &bug);  // true if the mistake is detected
void run_runtime();                   // streams, graphs, faults
