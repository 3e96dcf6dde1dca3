// A view of a row-major tensor. Owns nothing; shapes stand beside pointers in every contract.
//
// A view is dense unless it is some columns of a wider matrix: its rows then stand row_stride() elements apart.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "kernels/tensor/bfloat16.h"

namespace penstock::kernels {

enum class DataType : uint8_t { Float32, BFloat16, Int32 };

constexpr int64_t size_bytes(DataType type) {
  switch (type) {
    case DataType::Float32:
      return 4;
    case DataType::BFloat16:
      return 2;
    case DataType::Int32:
      return 4;
  }
  return 0;
}

class TensorView {
 public:
  static constexpr int kMaxRank = 4;

  TensorView() = default;
  TensorView(void* data, DataType type, std::initializer_list<int64_t> shape) : data_(data), type_(type) {
    PENSTOCK_CHECK(shape.size() <= kMaxRank);
    for (int64_t size : shape) shape_[rank_++] = size;
    if (rank_ > 0) row_stride_ = shape_[0] == 0 ? 0 : elements() / shape_[0];
  }

  bool empty() const { return data_ == nullptr; }
  DataType type() const { return type_; }
  int rank() const { return rank_; }
  int64_t size(int dimension) const {
    PENSTOCK_CHECK(dimension < rank_);
    return shape_[dimension];
  }
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= shape_[i];
    return product;
  }
  int64_t bytes() const { return elements() * size_bytes(type_); }

  // Elements from one row of the first dimension to the next.
  int64_t row_stride() const { return row_stride_; }
  bool dense() const { return rank_ == 0 || shape_[0] == 0 || row_stride_ * shape_[0] == elements(); }

  void* data() const { return data_; }
  float* f32() const {
    PENSTOCK_CHECK(type_ == DataType::Float32);
    return static_cast<float*>(data_);
  }
  BFloat16* bf16() const {
    PENSTOCK_CHECK(type_ == DataType::BFloat16);
    return static_cast<BFloat16*>(data_);
  }
  int32_t* i32() const {
    PENSTOCK_CHECK(type_ == DataType::Int32);
    return static_cast<int32_t*>(data_);
  }

  // Rows [begin, begin + count) of the first dimension.
  TensorView rows(int64_t begin, int64_t count) const {
    PENSTOCK_CHECK(rank_ >= 1 && begin >= 0 && begin + count <= shape_[0]);
    TensorView view = *this;
    view.shape_[0] = count;
    view.data_ = static_cast<char*>(data_) + begin * row_stride_ * size_bytes(type_);
    return view;
  }
  // Columns [begin, begin + count) of a matrix.
  TensorView columns(int64_t begin, int64_t count) const {
    PENSTOCK_CHECK(rank_ == 2 && begin >= 0 && begin + count <= shape_[1]);
    TensorView view = *this;
    view.shape_[1] = count;
    view.data_ = static_cast<char*>(data_) + begin * size_bytes(type_);
    return view;
  }

 private:
  void* data_ = nullptr;
  DataType type_ = DataType::Float32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  int64_t row_stride_ = 0;
};

}  // namespace penstock::kernels
