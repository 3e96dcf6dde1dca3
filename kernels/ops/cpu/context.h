// What every CPU operation works with: the compute threads, scratch memory and cached matrix products.
//
// Limits: scratch grows to the largest shape seen and stays; nothing is allocated after the first use of a
// shape. Errors: no memory throws std::runtime_error, with the bytes asked for. Thread: reserve_*() and product() are for the caller of the operation; thread_scratch(),
// made_product() and MatrixProduct::run for the pieces of a parallel_for.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/device/compute_threads.h"
#include "kernels/device/slab.h"
#include "kernels/ops/cpu/matrix_product.h"

namespace penstock::kernels::cpu {

// One block of scratch that only grows. Growing loses the contents.
class Scratch {
 public:
  float* reserve(int64_t floats);
  float* data() const { return static_cast<float*>(slab_.view().data); }

 private:
  Slab slab_;
};

// Gives out places in one scratch block, each on a cache line of its own.
class ScratchLayout {
 public:
  // Offset in floats of a place for `count` elements.
  template <typename Element = float>
  int64_t add(int64_t count) {
    const int64_t offset = floats_;
    floats_ += (count * static_cast<int64_t>(sizeof(Element)) + 63) / 64 * 16;
    return offset;
  }
  int64_t floats() const { return floats_; }

 private:
  int64_t floats_ = 0;
};

// Scratch that all threads share, by what it holds: an operation may call another one.
enum class Shared : uint8_t { Sums, PackedRows, Logits, Widened, ExpertPieces };

// Products that differ in one size only, found by it.
class SizedProducts {
 public:
  MatrixProduct& operator[](int64_t size) const {
    const auto index = static_cast<size_t>(size);
    PENSTOCK_CHECK(index < made_.size() && made_[index] != nullptr,
                   "a piece uses a product of size {} that was not made", size);
    return *made_[index];
  }

 private:
  friend class Context;
  std::vector<MatrixProduct*> made_;
};

class Context {
 public:
  explicit Context(ComputeThreads& threads);

  ComputeThreads& threads() { return threads_; }

  template <typename Piece>
  void parallel_for(int64_t pieces, const Piece& piece) {
    threads_.parallel_for(pieces, piece);
  }

  float* reserve_shared(int64_t floats, Shared use = Shared::Sums) {
    return shared_[static_cast<size_t>(use)].reserve(floats);
  }
  // The same for every thread; a piece finds its own with thread_scratch().
  void reserve_per_thread(int64_t floats);
  float* thread_scratch() { return per_thread_[ComputeThreads::current_thread()].data(); }

  // The product of this shape, made at first use. The reference stays valid.
  MatrixProduct& product(const ProductShape& shape);
  // The product of a shape that product() has made: for the pieces.
  MatrixProduct& made_product(const ProductShape& shape) const;
  // The products of `shape` with each of the ascending `sizes` as its rows or its inner, made at first use.
  const SizedProducts& products(ProductShape shape, int64_t ProductShape::*size,
                                std::span<const int64_t> sizes);

 private:
  ComputeThreads& threads_;
  std::array<Scratch, 5> shared_;  // by Shared
  std::vector<Scratch> per_thread_;
  MatrixProductThreads product_threads_;
  std::map<ProductShape, std::unique_ptr<MatrixProduct>> products_;
  std::map<ProductShape, SizedProducts> sized_products_;  // by the shape with a zero for what differs
};

}  // namespace penstock::kernels::cpu
