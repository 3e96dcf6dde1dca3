#include "kernels/ops/cpu/matrix_product.h"

#include <array>
#include <atomic>
#include <stdexcept>

#include "base/check.h"
#include "base/log.h"
#include "kernels/device/compute_threads.h"

namespace penstock::kernels::cpu {
namespace {

dnnl::memory::desc describe(int64_t rows, int64_t columns, Operand operand) {
  using Tag = dnnl::memory::format_tag;
  return {{rows, columns}, dnnl::memory::data_type::f32, operand == Operand::Plain ? Tag::ab : Tag::ba};
}

std::string name(const ProductShape& shape) {
  return fmt::format("[{}, {}]{} x [{}, {}]{}{}", shape.rows, shape.inner,
                     shape.left == Operand::Transposed ? " transposed" : "", shape.inner, shape.columns,
                     shape.right == Operand::Transposed ? " transposed" : "",
                     shape.result == Result::Added ? ", added" : "");
}

dnnl::matmul::primitive_desc make_product(const ProductShape& shape, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.result == Result::Added) {
    dnnl::post_ops add_to_output;
    add_to_output.append_sum(1.0f);
    attributes.set_post_ops(add_to_output);
  }
  const dnnl::matmul::desc description(describe(shape.rows, shape.inner, shape.left),
                                       describe(shape.inner, shape.columns, shape.right),
                                       describe(shape.rows, shape.columns, Operand::Plain));
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

}  // namespace

MatrixProductThreads::MatrixProductThreads(int threads)
    : engine_(dnnl::engine::kind::cpu, 0), scratch_(threads) {
  for (int i = 0; i < threads; ++i) streams_.emplace_back(engine_);
}

void MatrixProductThreads::reserve_scratch(int64_t bytes) {
  for (Slab& scratch : scratch_) {
    if (bytes <= scratch.bytes()) continue;
    scratch = Slab();
    StatusOr<Slab> grown = Slab::allocate(bytes, "scratch memory of a matrix product");
    if (!grown.ok()) throw std::runtime_error(message(grown.status()));
    scratch = *std::move(grown);
  }
}

MatrixProduct::MatrixProduct(const ProductShape& shape, MatrixProductThreads& threads) : threads_(threads) {
  use_one_openmp_thread();  // oneDNN fixes the thread count of a kernel here
  dnnl::matmul::primitive_desc description;
  try {
    description = make_product(shape, threads.engine());
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

// Through the C interface: the C++ one builds a map and a vector for each call.
void MatrixProduct::run(const float* left, const float* right, float* output) {
  const int thread = ComputeThreads::current_thread();
  Operands& operands = operands_[thread];
  dnnl_memory_set_data_handle(operands.left.get(), const_cast<float*>(left));
  dnnl_memory_set_data_handle(operands.right.get(), const_cast<float*>(right));
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

std::string matrix_product_fingerprint() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format(
      "oneDNN {}.{}.{} {}{}", version->major, version->minor, version->patch,
      name(dnnl::get_effective_cpu_isa()),
      has_row_invariant_products() && !other_kernels ? "" : ", products without row-invariant kernels");
}

}  // namespace penstock::kernels::cpu
