#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plan/spec/cost_source.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

CostNumbers costs_of_stages(size_t stages) {
  CostNumbers costs;
  costs.stages.assign(stages,
                      {.forward = "1", .input_gradient = "1", .weight_gradient = "1", .backward = "2"});
  return costs;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ExampleJobs, every_job_file_that_is_shipped_is_accepted) {
  int jobs = 0;
  for (const auto& file : std::filesystem::directory_iterator(PENSTOCK_SOURCE_DIR "/deploy/jobs")) {
    if (file.path().extension() != ".yaml") continue;
    ++jobs;
    std::string text = text_of(file.path());
    // Its costs stand in a file beside it, which the one who submits reads.
    if (!cost_source(text)->empty()) text = *with_costs(text, costs_of_stages(32));
    const StatusOr<JobSpec> spec = parse_job_spec(text);
    ASSERT_TRUE(spec.ok()) << file.path() << ": " << spec.status();
    EXPECT_EQ(spec->name, file.path().stem().string());
    EXPECT_TRUE(spec->notes.empty()) << spec->notes.front();
  }
  EXPECT_GE(jobs, 2);
}

TEST(ExampleJobs, the_quickstart_is_the_job_that_its_documents_describe) {
  const StatusOr<JobSpec> spec = parse_job_spec(text_of(PENSTOCK_SOURCE_DIR "/deploy/jobs/quickstart.yaml"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->parallel.schedule, "interleaved-1f1b");
  EXPECT_EQ(spec->ranks(), 4);
  EXPECT_EQ(spec->parallel.stages_per_rank, 2);
  EXPECT_EQ(spec->microbatches(), 8);
  EXPECT_GE(spec->train.steps, 150);
  EXPECT_EQ(spec->train.dtype, "float32");
}

}  // namespace
}  // namespace penstock::plan
