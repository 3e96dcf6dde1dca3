// One matrix product of a fixed shape by oneDNN, on one thread: float32, or bfloat16 summed in float32.
//
// Numerics: the kernel is chosen by the shape when the product is made, so that the same cut gives the same bits
// on every such CPU. With AVX-512 it is a "brg" kernel, whose rows have the same bits however many of them a
// call computes; where oneDNN chooses another, the log and from then on the fingerprint say so. Operands are
// dense because any other stride silently selects another kernel with other bits. Where oneDNN has no bfloat16
// kernels the operands are widened and the product is one of float32, its result rounded. Errors: what the shape and not
// the program is to blame for, as no memory, throws std::runtime_error when the product is made. Limits: scratch is the caller's (oneDNN's
// user mode) and is sized when a product is made; run() makes nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "kernels/device/slab.h"
#include "kernels/tensor/tensor.h"

namespace penstock::kernels::cpu {

// Transposed: what lies in memory is the transpose. Packed: in the blocked layout of packed_weight.h, a right
// operand only, where has_packed_products().
enum class Operand : uint8_t { Plain, Transposed, Packed };
enum class Result : uint8_t { Written, Added };

// output [rows, columns] = left [rows, inner] x right [inner, columns], all dense.
struct ProductShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  Operand left = Operand::Plain;             // Transposed: left lies as [inner, rows]
  Operand right = Operand::Plain;            // Transposed: right lies as [columns, inner]
  Result result = Result::Written;           // Added: to what output holds, after the sum over `inner`
  DataType type = DataType::Float32;         // of both operands
  DataType output_type = DataType::Float32;  // bfloat16: rounded once, after the addition

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
  // For operands and results that are widened.
  float* wide(int thread) const { return static_cast<float*>(wide_[thread].view().data); }
  void reserve_wide(int64_t floats);

 private:
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;
  std::vector<Slab> scratch_;
  std::vector<Slab> wide_;
};

class MatrixProduct {
 public:
  MatrixProduct(const ProductShape& shape, MatrixProductThreads& threads);

  // Runs on the calling compute thread. Pointers to elements of the shape's types.
  void run(const void* left, const void* right, void* output);

 private:
  void run_widened(const void* left, const void* right, void* output);
  void execute(const void* left, const void* right, void* output);

  struct Operands {
    dnnl::memory left, right, output, scratch;
  };
  MatrixProductThreads& threads_;
  ProductShape shape_;
  bool widened_ = false;  // bfloat16 without kernels for it
  dnnl::matmul product_;
  std::vector<Operands> operands_;  // by compute thread
};

// Whether this CPU has the kernels whose rows do not depend on their number.
bool has_row_invariant_products();

// Whether products of this type run on kernels of their own, which read packed right operands.
bool has_packed_products(DataType type);

// The oneDNN version and instruction set in force: "oneDNN 2.6.3 avx512_core_bf16".
std::string matrix_product_fingerprint();

}  // namespace penstock::kernels::cpu
