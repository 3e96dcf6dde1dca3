// One float32 matrix product of a fixed shape by oneDNN, on one thread.
//
// Numerics: the kernel is chosen by the shape when the product is made, so that the same cut gives the same bits
// on every such CPU. With AVX-512 it is a "brg" kernel, whose rows have the same bits however many of them a
// call computes; where oneDNN chooses another, the log and from then on the fingerprint say so. Operands are
// dense because any other stride silently selects another kernel with other bits. Errors: what the shape and not
// the program is to blame for, as no memory, throws std::runtime_error when the product is made. Limits: scratch is the caller's (oneDNN's
// user mode) and is sized when a product is made; run() makes nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "kernels/device/slab.h"

namespace penstock::kernels::cpu {

enum class Operand : uint8_t { Plain, Transposed };  // Transposed: what lies in memory is the transpose
enum class Result : uint8_t { Written, Added };

// output [rows, columns] = left [rows, inner] x right [inner, columns], all dense.
struct ProductShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  Operand left = Operand::Plain;    // Transposed: left lies as [inner, rows]
  Operand right = Operand::Plain;   // Transposed: right lies as [columns, inner]
  Result result = Result::Written;  // Added: to what output holds, after the sum over `inner`

  auto operator<=>(const ProductShape&) const = default;
};

// oneDNN's engine, and what each compute thread needs of its own: a stream and scratch for the largest
// product.
class MatrixProductThreads {
 public:
  explicit MatrixProductThreads(int threads);

  const dnnl::engine& engine() const { return engine_; }
  int threads() const { return static_cast<int>(streams_.size()); }
  dnnl::stream& stream(int thread) { return streams_[thread]; }
  void* scratch(int thread) const { return scratch_[thread].view().data; }
  void reserve_scratch(int64_t bytes);

 private:
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;
  std::vector<Slab> scratch_;
};

class MatrixProduct {
 public:
  MatrixProduct(const ProductShape& shape, MatrixProductThreads& threads);

  // Runs on the calling compute thread.
  void run(const float* left, const float* right, float* output);

 private:
  struct Operands {
    dnnl::memory left, right, output, scratch;
  };
  MatrixProductThreads& threads_;
  dnnl::matmul product_;
  std::vector<Operands> operands_;  // by compute thread
};

// Whether this CPU has the kernels whose rows do not depend on their number.
bool has_row_invariant_products();

// The oneDNN version and instruction set in force: "oneDNN 2.6.3 avx512_core_bf16".
std::string matrix_product_fingerprint();

}  // namespace penstock::kernels::cpu
