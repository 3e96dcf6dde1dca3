#include "tests/perf/measure/bare_products.h"

#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/check.h"
#include "kernels/device/compute_threads.h"

namespace penstock::perf {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

struct Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Engine& the_engine() {
  static Engine engine;
  return engine;
}

// How a product is run.
struct Way {
  Tag left = Tag::ab;
  Tag right = Tag::any;
  int64_t rows = 0;   // of one call
  int64_t inner = 0;  // of one call
};

std::vector<Way> ways_of(const Product& product) {
  std::vector<Way> ways;
  switch (product.kind) {
    case Product::Kind::Weight:
      for (int64_t rows : {product.rows, int64_t{256}, int64_t{128}})
        ways.push_back({Tag::ab, Tag::any, rows, product.inner});
      break;
    case Product::Kind::WeightGradient:
      for (int64_t inner : {product.inner, std::min<int64_t>(product.inner, 512)}) {
        for (int64_t rows : {product.rows, int64_t{128}}) {
          for (Tag left : {Tag::ba, Tag::ab}) ways.push_back({left, Tag::any, rows, inner});
        }
      }
      break;
    case Product::Kind::Activation:
      for (Tag right : {Tag::ab, Tag::ba, Tag::any})
        ways.push_back({Tag::ab, right, product.rows, product.inner});
      break;
  }
  return ways;
}

constexpr double kSampleSeconds = 0.02;

}  // namespace

// One product in one way: primitives for the pieces, and memory for every time it is run.
class BareProducts::Runner {
 public:
  Runner(const Product& product, const Way& way, kernels::DataType type, int64_t count)
      : product_(product), way_(way) {
    const Type element = type == kernels::DataType::BFloat16 ? Type::bf16 : Type::f32;
    const bool wide = product.kind != Product::Kind::Weight || product.wide_result;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (product.kind == Product::Kind::WeightGradient) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc description({{way.rows, way.inner}, element, way.left},
                                         {{way.inner, product.columns}, element, way.right},
                                         {{way.rows, product.columns}, wide ? Type::f32 : element, Tag::ab});
    const dnnl::matmul::primitive_desc made(description, attributes, the_engine().engine);
    primitive_ = dnnl::matmul(made);
    scratch_ = fresh(made.scratchpad_desc());
    const int64_t copies = product.kind == Product::Kind::Activation ? 1 : count;
    for (int64_t i = 0; i < copies * calls(); ++i) operands_.push_back(make_operands(made));
    repetitions_ = count / copies;
  }

  void run() {
    for (int64_t i = 0; i < repetitions_; ++i) {
      for (const Operands& each : operands_) execute(each);
    }
  }

  double seconds() {
    const Duration start = thread_cpu_time();
    run();
    return to_seconds(thread_cpu_time() - start);
  }
  const Product& product() const { return product_; }

 private:
  struct Operands {
    dnnl::memory left, right, output;
  };

  int64_t calls() const { return product_.rows / way_.rows * (product_.inner / way_.inner); }

  static dnnl::memory fresh(const dnnl::memory::desc& description) {
    dnnl::memory memory(description, the_engine().engine);
    auto* bytes = static_cast<unsigned char*>(memory.get_data_handle());
    std::fill(bytes, bytes + description.get_size(), 0);
    return memory;
  }

  // Through the C interface, which builds nothing for a call.
  void execute(const Operands& each) const {
    const std::array<dnnl_exec_arg_t, 4> arguments = {{{DNNL_ARG_SRC, each.left.get()},
                                                       {DNNL_ARG_WEIGHTS, each.right.get()},
                                                       {DNNL_ARG_DST, each.output.get()},
                                                       {DNNL_ARG_SCRATCHPAD, scratch_.get()}}};
    const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), the_engine().stream.get(),
                                                        static_cast<int>(arguments.size()), arguments.data());
    PENSTOCK_CHECK(status == dnnl_success, "{}", product_.name);
  }

  // Pieces of rows share the right operand and pieces of the sum share the output, as in one product.
  Operands make_operands(const dnnl::matmul::primitive_desc& made) const {
    const auto index = static_cast<int64_t>(operands_.size());
    const int64_t pieces = product_.rows / way_.rows;
    const bool first_of_rows = way_.rows == product_.rows || index % pieces == 0;
    const bool first_sum = way_.inner == product_.inner || index % calls() < pieces;
    return {fresh(made.src_desc()), first_of_rows ? fresh(made.weights_desc()) : operands_.back().right,
            first_sum ? fresh(made.dst_desc()) : operands_[static_cast<size_t>(index - pieces)].output};
  }

  Product product_;
  Way way_;
  dnnl::matmul primitive_;
  dnnl::memory scratch_;
  std::vector<Operands> operands_;
  int64_t repetitions_ = 1;  // of all operands
};

BareProducts::BareProducts(const std::vector<Product>& products, kernels::DataType type) {
  kernels::use_one_openmp_thread();
  for (const Product& product : products) {
    double fastest = 0;
    Way best;
    for (const Way& way : ways_of(product)) {
      if (product.rows % way.rows != 0 || product.inner % way.inner != 0) continue;
      Runner runner(product, way, type, 1);
      runner.run();
      double least = runner.seconds();
      for (double spent = least; spent < kSampleSeconds;) {
        const double again = runner.seconds();
        least = std::min(least, again);
        spent += again;
      }
      if (fastest == 0 || least < fastest) {
        fastest = least;
        best = way;
      }
    }
    runners_.push_back(std::make_unique<Runner>(product, best, type, product.count));
  }
}

BareProducts::~BareProducts() = default;

void BareProducts::run() {
  for (const auto& runner : runners_) runner->run();
}

std::vector<BareProducts::Row> BareProducts::profile() {
  std::vector<Row> rows;
  for (const auto& runner : runners_) rows.push_back({runner->product(), runner->seconds()});
  return rows;
}

}  // namespace penstock::perf
