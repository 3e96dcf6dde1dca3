#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

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
    const StatusOr<JobSpec> spec = parse_job_spec(text_of(file.path()));
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
