#include "kernels/ops/cpu/matrix_product.h"

#include <array>
#include <atomic>
#include <stdexcept>

#include "base/check.h"
#include "base/log.h"
#include "kernels/device/compute_threads.h"
#include "kernels/ops/cpu/lanes.h"

namespace penstock::kernels::cpu {
namespace {

using Tag = dnnl::memory::format_tag;

Tag tag(Operand operand, DataType type) {
  switch (operand) {
    case Operand::Plain:
      return Tag::ab;
    case Operand::Transposed:
      return Tag::ba;
    case Operand::Packed:
      return type == DataType::BFloat16 ? Tag::BA16a64b2a : Tag::BA16a64b;
  }
  return Tag::undef;
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, DataType type, Operand operand = Operand::Plain) {
  const auto element =
      type == DataType::BFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  return {{rows, columns}, element, tag(operand, type)};
}

std::string name(const ProductShape& shape) {
  constexpr const char* kOperand[] = {"", " transposed", " packed"};
  return fmt::format("[{}, {}]{} x [{}, {}]{}{}{}", shape.rows, shape.inner,
                     kOperand[static_cast<int>(shape.left)], shape.inner, shape.columns,
                     kOperand[static_cast<int>(shape.right)], shape.result == Result::Added ? ", added" : "",
                     shape.type == DataType::BFloat16 ? " of bfloat16" : "");
}

dnnl::matmul::primitive_desc make_product(const ProductShape& shape, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.result == Result::Added) {
    dnnl::post_ops add_to_output;
    add_to_output.append_sum(1.0f);
    attributes.set_post_ops(add_to_output);
  }
  const dnnl::matmul::desc description(describe(shape.rows, shape.inner, shape.type, shape.left),
                                       describe(shape.inner, shape.columns, shape.type, shape.right),
                                       describe(shape.rows, shape.columns, shape.output_type));
  return {description, attributes, engine};
}

const char* name(dnnl::cpu_isa set) {
  switch (set) {
    case dnnl::cpu_isa::all:
      return "all";
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_mic:
      return "avx512_mic";
    case dnnl::cpu_isa::avx512_mic_4ops:
      return "avx512_mic_4ops";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
  }
  return "unknown";
}

// Set once oneDNN has chosen another kernel than this CPU's row-invariant ones.
std::atomic<bool> other_kernels{false};

void note_kernel(const ProductShape& shape, const std::string& kernel) {
  if (!has_row_invariant_products() || kernel.starts_with("brg")) return;
  other_kernels = true;
  log::warning("product {}: oneDNN chose the kernel {}, whose rows may depend on how many there are",
               name(shape), kernel);
}

void grow(std::vector<Slab>& slabs, int64_t bytes) {
  for (Slab& slab : slabs) {
    if (bytes <= slab.bytes()) continue;
    slab = Slab();
    StatusOr<Slab> grown = Slab::allocate(bytes, "scratch memory of a matrix product");
    if (!grown.ok()) throw std::runtime_error(message(grown.status()));
    slab = *std::move(grown);
  }
}

void widen_all(const void* from, int64_t count, float* to) {
  const auto* narrow = static_cast<const BFloat16*>(from);
  vectorised([&]() PENSTOCK_INLINE {
    for_each_lanes(count, [&](const auto& lanes, int64_t i)
                              PENSTOCK_INLINE { lanes.store(to + i, lanes.load(narrow + i)); });
  });
}
void round_all(const float* from, int64_t count, void* to) {
  auto* narrow = static_cast<BFloat16*>(to);
  vectorised([&]() PENSTOCK_INLINE {
    for_each_lanes(count, [&](const auto& lanes, int64_t i)
                              PENSTOCK_INLINE { lanes.store(narrow + i, lanes.load(from + i)); });
  });
}

}  // namespace

MatrixProductThreads::MatrixProductThreads(int threads)
    : engine_(dnnl::engine::kind::cpu, 0), scratch_(threads), wide_(threads) {
  for (int i = 0; i < threads; ++i) streams_.emplace_back(engine_);
}

void MatrixProductThreads::reserve_scratch(int64_t bytes) {
  grow(scratch_, bytes);
}
void MatrixProductThreads::reserve_wide(int64_t floats) {
  grow(wide_, floats * static_cast<int64_t>(sizeof(float)));
}

MatrixProduct::MatrixProduct(const ProductShape& shape, MatrixProductThreads& threads)
    : threads_(threads),
      shape_(shape),
      widened_(shape.type == DataType::BFloat16 && !has_packed_products(shape.type)) {
  PENSTOCK_CHECK(shape.right != Operand::Packed || has_packed_products(shape.type), "{}", name(shape));
  use_one_openmp_thread();  // oneDNN fixes the thread count of a kernel here
  ProductShape made = shape;
  if (widened_) {
    made.type = made.output_type = DataType::Float32;
    threads.reserve_wide(shape.rows * shape.inner + shape.inner * shape.columns + shape.rows * shape.columns);
  }
  dnnl::matmul::primitive_desc description;
  try {
    description = make_product(made, threads.engine());
    product_ = dnnl::matmul(description);
  } catch (const dnnl::error& problem) {
    throw std::runtime_error(
        fmt::format("oneDNN cannot make the product {}: {}", name(shape), problem.what()));
  }
  note_kernel(shape, description.impl_info_str());
  threads.reserve_scratch(static_cast<int64_t>(description.scratchpad_desc().get_size()));
  const dnnl::engine& engine = threads.engine();
  for (int i = 0; i < threads.threads(); ++i) {
    operands_.push_back({dnnl::memory(description.src_desc(), engine, DNNL_MEMORY_NONE),
                         dnnl::memory(description.weights_desc(), engine, DNNL_MEMORY_NONE),
                         dnnl::memory(description.dst_desc(), engine, DNNL_MEMORY_NONE),
                         dnnl::memory(description.scratchpad_desc(), engine, DNNL_MEMORY_NONE)});
  }
}

void MatrixProduct::run(const void* left, const void* right, void* output) {
  return widened_ ? run_widened(left, right, output) : execute(left, right, output);
}

void MatrixProduct::run_widened(const void* left, const void* right, void* output) {
  float* const wide_left = threads_.wide(ComputeThreads::current_thread());
  float* const wide_right = wide_left + shape_.rows * shape_.inner;
  float* const wide_output = wide_right + shape_.inner * shape_.columns;
  const int64_t results = shape_.rows * shape_.columns;
  widen_all(left, shape_.rows * shape_.inner, wide_left);
  widen_all(right, shape_.inner * shape_.columns, wide_right);
  if (shape_.output_type == DataType::Float32) return execute(wide_left, wide_right, output);
  if (shape_.result == Result::Added) widen_all(output, results, wide_output);
  execute(wide_left, wide_right, wide_output);
  round_all(wide_output, results, output);
}

// Through the C interface: the C++ one builds a map and a vector for each call.
void MatrixProduct::execute(const void* left, const void* right, void* output) {
  const int thread = ComputeThreads::current_thread();
  Operands& operands = operands_[thread];
  dnnl_memory_set_data_handle(operands.left.get(), const_cast<void*>(left));
  dnnl_memory_set_data_handle(operands.right.get(), const_cast<void*>(right));
  dnnl_memory_set_data_handle(operands.output.get(), output);
  dnnl_memory_set_data_handle(operands.scratch.get(), threads_.scratch(thread));
  const std::array<dnnl_exec_arg_t, 4> arguments = {{{DNNL_ARG_SRC, operands.left.get()},
                                                     {DNNL_ARG_WEIGHTS, operands.right.get()},
                                                     {DNNL_ARG_DST, operands.output.get()},
                                                     {DNNL_ARG_SCRATCHPAD, operands.scratch.get()}}};
  const dnnl_status_t status = dnnl_primitive_execute(product_.get(), threads_.stream(thread).get(),
                                                      static_cast<int>(arguments.size()), arguments.data());
  PENSTOCK_CHECK(status == dnnl_success, "oneDNN matrix product failed with status {}",
                 static_cast<int>(status));
}

bool has_row_invariant_products() {
  const auto core = static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & core) == core;
}

bool has_packed_products(DataType type) {
  const auto needed = static_cast<unsigned>(type == DataType::BFloat16 ? dnnl_cpu_isa_avx512_core_bf16
                                                                       : dnnl_cpu_isa_avx512_core);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

std::string matrix_product_fingerprint() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format(
      "oneDNN {}.{}.{} {}{}{}", version->major, version->minor, version->patch,
      name(dnnl::get_effective_cpu_isa()),
      has_packed_products(DataType::BFloat16) ? "" : ", bfloat16 products in float32",
      has_row_invariant_products() && !other_kernels ? "" : ", products without row-invariant kernels");
}

}  // namespace penstock::kernels::cpu
