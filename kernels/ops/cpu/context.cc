#include "kernels/ops/cpu/context.h"

#include <stdexcept>

#include "base/check.h"

namespace penstock::kernels::cpu {

float* Scratch::reserve(int64_t floats) {
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  if (bytes > slab_.bytes()) {
    slab_ = Slab();
    StatusOr<Slab> grown = Slab::allocate(bytes, "scratch memory of an operation");
    if (!grown.ok()) throw std::runtime_error(message(grown.status()));
    slab_ = *std::move(grown);
  }
  return data();
}

Context::Context(ComputeThreads& threads)
    : threads_(threads), per_thread_(threads.threads()), product_threads_(threads.threads()) {}

void Context::reserve_per_thread(int64_t floats) {
  for (Scratch& scratch : per_thread_) scratch.reserve(floats);
}

MatrixProduct& Context::product(const ProductShape& shape) {
  std::unique_ptr<MatrixProduct>& product = products_[shape];
  if (product == nullptr) product = std::make_unique<MatrixProduct>(shape, product_threads_);
  return *product;
}

MatrixProduct& Context::made_product(const ProductShape& shape) const {
  const auto found = products_.find(shape);
  PENSTOCK_CHECK(found != products_.end(), "a piece uses a product of {} rows that was not made before",
                 shape.rows);
  return *found->second;
}

const SizedProducts& Context::products(ProductShape shape, int64_t ProductShape::*size,
                                       std::span<const int64_t> sizes) {
  shape.*size = 0;
  SizedProducts& products = sized_products_[shape];
  if (sizes.empty() || static_cast<size_t>(sizes.back()) < products.made_.size()) return products;
  std::vector<MatrixProduct*> made(static_cast<size_t>(sizes.back()) + 1);
  for (const int64_t each : sizes) {
    shape.*size = each;
    made[static_cast<size_t>(each)] = &product(shape);
  }
  products.made_ = std::move(made);
  return products;
}

}  // namespace penstock::kernels::cpu
