#include "client/commands/cost_profile.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "client/commands/follow.h"
#include "client/commands/measured_job.h"
#include "client/commands/terminal.h"
#include "plan/forecast/measured_costs.h"

namespace penstock::client {
namespace {

constexpr size_t kProfileFileBytesMax = size_t{64} << 20;
constexpr std::string_view kJobPrefix = "job:";
constexpr size_t kJobsMax = 8;

// "312T", "2TB", "1e11": a number with an optional unit of thousands, and the letters that stand for what is counted.
StatusOr<double> parse_rate(const std::string& text, const char* option, std::string_view counted) {
  const std::string_view units = "kMGTPE";
  double rate = 0;
  const char* const end = text.data() + text.size();
  const auto [number_end, failure] = std::from_chars(text.data(), end, rate);
  std::string_view rest(number_end, static_cast<size_t>(end - number_end));
  if (!rest.empty() && units.find(rest.front()) != std::string_view::npos) {
    for (size_t i = 0; i <= units.find(rest.front()); ++i) rate *= 1000;
    rest.remove_prefix(1);
  }
  if (failure == std::errc() && (rest.empty() || rest == counted)) return rate;
  return invalid_argument("{}: expected a number with an optional unit, as 100G, found {}", option,
                          text.substr(0, 40));
}

Status read_rates(const CostOptions& options, plan::DeviceRates& rates) {
  if (!options.device_flops.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(rates.flops_per_second,
                              parse_rate(options.device_flops, "--device-flops", "FLOP"));
  }
  if (!options.device_bandwidth.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(rates.bytes_per_second,
                              parse_rate(options.device_bandwidth, "--device-bandwidth", "B"));
  }
  return plan::rates_model(rates).status();
}

bool is_file(const std::string& profile) {
  std::error_code ignored;
  return !profile.starts_with(kJobPrefix) && std::filesystem::is_regular_file(profile, ignored);
}

StatusOr<plan::LayerCostModel> model_of_file(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, kProfileFileBytesMax));
  return plan::file_model(text, path);
}

std::string job_name(const std::string& profile) {
  return profile.starts_with(kJobPrefix) ? profile.substr(kJobPrefix.size()) : profile;
}

// Whether it can be the name of a job at all; plan/spec/job_spec.h.
bool can_be_job(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Status check_jobs(const std::vector<std::string>& profiles) {
  if (profiles.size() > kJobsMax)
    return invalid_argument("--profile: expected at most {} jobs, found {}", kJobsMax, profiles.size());
  for (const std::string& profile : profiles) {
    if (is_file(profile))
      return invalid_argument("--profile: expected one file, or jobs of the service, found {} beside others",
                              profile);
    if (!can_be_job(job_name(profile)))
      return not_found("--profile: {}: no such file, nor a name that a job can have", profile);
  }
  return ok_status();
}

StatusOr<plan::LayerCostModel> model_of_jobs(const std::vector<std::string>& profiles,
                                        const ConnectionOptions& connection) {
  PENSTOCK_RETURN_IF_ERROR(check_jobs(profiles));
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(connection.coordinator);
  PENSTOCK_RETURN_IF_ERROR(coordinator.status());
  std::vector<plan::MeasuredJobRuns> jobs;
  for (const std::string& profile : profiles) {
    const std::string name = job_name(profile);
    StatusOr<MeasuredJob> measured = measured_job(**coordinator, name);
    if (!measured.ok())
      return with_context(measured.status(),
                          fmt::format("--profile {}: no such file, and as a job", profile));
    jobs.push_back({name, std::move(measured->spec), std::move(measured->runs)});
  }
  return plan::measured_model(std::move(jobs));
}

}  // namespace

StatusOr<plan::CostSources> cost_sources(const CostOptions& options, const ConnectionOptions& connection) {
  plan::CostSources sources;
  PENSTOCK_RETURN_IF_ERROR(read_rates(options, sources.rates));
  if (options.profiles.empty()) return sources;
  const bool has_rates = !options.device_flops.empty() || !options.device_bandwidth.empty();
  if (has_rates) {
    return invalid_argument(
        "--profile: expected costs, or --device-flops and --device-bandwidth, which stand in for them");
  }
  if (options.profiles.size() == 1 && is_file(options.profiles.front())) {
    PENSTOCK_ASSIGN_OR_RETURN(sources.profile, model_of_file(options.profiles.front()));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(sources.profile, model_of_jobs(options.profiles, connection));
  }
  return sources;
}

}  // namespace penstock::client
