#include "client/present/job_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/present/job_shape.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

// JSON knows no infinity; a loss that is none is said as text, not hidden as null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(shortest_decimal(value));
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json stage_json(const v1::StageStatus& stage) {
  Json json;
  json["stage"] = stage.stage();
  json["rank"] = stage.rank();
  json["layers"] = Json::array();
  for (const std::string& layer : stage.layers()) json["layers"].push_back(layer);
  if (stage.has_forward_ms()) json["forward_ms"] = number(stage.forward_ms());
  if (stage.has_backward_ms()) json["backward_ms"] = number(stage.backward_ms());
  if (stage.has_wait_ms()) json["wait_ms"] = number(stage.wait_ms());
  if (stage.has_memory_peak_bytes()) json["memory_peak_bytes"] = stage.memory_peak_bytes();
  if (stage.has_memory_predicted_bytes()) json["memory_predicted_bytes"] = stage.memory_predicted_bytes();
  if (stage.has_payload_slots()) json["payload_slots"] = stage.payload_slots();
  if (stage.has_payload_slots_peak()) json["payload_slots_peak"] = stage.payload_slots_peak();
  return json;
}

// A scalar of JSON is a scalar of YAML: quoted text keeps its escapes.
void write_yaml(const Json& json, int depth, std::string& out) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  const auto write_value = [&](const Json& value) {
    if (value.is_structured() && !value.empty()) {
      out += "\n";
      write_yaml(value, depth + 1, out);
    } else {
      out += " " + compact(value) + "\n";
    }
  };
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      out += indent + name + ":";
      write_value(value);
    }
  } else if (json.is_array()) {
    for (const Json& value : json) {
      if (value.is_structured() && !value.empty()) {
        std::string nested;
        write_yaml(value, depth + 1, nested);
        out += nested.replace(indent.size(), 2, "- ");
      } else {
        out += indent + "- " + compact(value) + "\n";
      }
    }
  } else {
    out += indent + compact(json) + "\n";
  }
}

Json validation_json(const v1::Job& job) {
  Json list = Json::array();
  for (const v1::ValidationLoss& each : job.validation()) {
    Json pass;
    pass["step"] = each.step();
    pass["loss"] = shortest_decimal(each.loss());
    list.push_back(std::move(pass));
  }
  return list;
}

}  // namespace

Json job_json(const v1::Job& job) {
  Json json;
  json["name"] = job.name();
  json["state"] = name_of(job.state());
  json["reason"] = job.reason();
  json["weights_digest"] = text_or_null(job.weights_digest());
  json["weights_directory"] = text_or_null(job.weights_directory());
  json["step"] = job.step();
  json["loss"] = job.has_loss() ? number(job.loss()) : Json(nullptr);
  json["tokens_per_second"] = job.has_tokens_per_second() ? number(job.tokens_per_second()) : Json(nullptr);
  json["attempt"] = job.attempt();
  if (!job.checkpoints_directory().empty()) {
    json["durable_step"] = job.durable_step();
    json["checkpoints_directory"] = job.checkpoints_directory();
  }
  if (!job.started_from().empty()) {
    json["started_from"] = job.started_from();
    json["first_step"] = job.first_step();
  }
  if (!job.validation().empty()) json["validation"] = validation_json(job);
  json["stages"] = Json::array();
  for (const v1::StageStatus& stage : job.stages()) json["stages"].push_back(stage_json(stage));
  if (!job.memory().empty()) json["memory"] = memory_json(job);
  if (const StatusOr<plan::JobSpec> spec = plan::parse_job_spec(job.spec_yaml()); spec.ok()) {
    json["parallel"] = {{"pipeline", spec->parallel.pipeline},
                        {"expert", spec->parallel.expert},
                        {"data", spec->parallel.data}};
    json["parameters"] = parameters_json(job, *spec);
  }
  return json;
}

Json outcome_json(const v1::Job& job) {
  Json json = job_json(job);
  json["losses"] = Json::array();
  for (const double loss : job.losses()) json["losses"].push_back(shortest_decimal(loss));
  json["seconds"] = number(job.seconds());
  return json;
}

Json no_outcome_json(const std::string& name, const std::string& state, const std::string& reason) {
  Json json;
  json["name"] = text_or_null(name);
  json["state"] = state;
  json["reason"] = reason;
  return json;
}

Json worker_json(const v1::Worker& worker) {
  Json json;
  json["name"] = worker.name();
  json["state"] = worker.state();
  json["pid"] = worker.pid();
  json["executor_pid"] = worker.executor_pid() > 0 ? Json(worker.executor_pid()) : Json(nullptr);
  json["device"] = worker.device();
  json["job"] = text_or_null(worker.job());
  json["rank"] = worker.job().empty() || worker.rank() < 0 ? Json(nullptr) : Json(worker.rank());
  json["drained_by"] = text_or_null(worker.drained_by());
  return json;
}

std::string compact(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string indented(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string yaml(const Json& json) {
  if (json.is_structured() && json.empty()) return compact(json) + "\n";
  std::string out;
  write_yaml(json, 0, out);
  return out;
}

}  // namespace penstock::client
