#include "worker/checkpoint/checkpoint_writer.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/checkpoint/shard.h"
#include "base/log.h"

namespace penstock::worker {
namespace {

constexpr size_t kAlignment = 64;
constexpr Duration kWaitWorthALine = 10ms;

size_t padded_bytes(const StateTensor& tensor) {
  return (tensor.values.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

// The same tensors, one behind another from `memory` on.
std::vector<StateTensor> laid_out(const std::vector<StateTensor>& tensors, std::byte*& memory) {
  std::vector<StateTensor> copies = tensors;
  for (StateTensor& copy : copies) {
    const size_t bytes = padded_bytes(copy);
    copy.values = {reinterpret_cast<float*>(memory), copy.values.size()};
    memory += bytes;
  }
  return copies;
}

void copy_values(const std::vector<StateTensor>& source, const std::vector<StateTensor>& target) {
  for (size_t i = 0; i < source.size(); ++i) {
    if (!source[i].values.empty())
      std::memcpy(target[i].values.data(), source[i].values.data(), source[i].values.size_bytes());
  }
}

std::vector<TensorToStore> to_store(const std::vector<StateTensor>& tensors) {
  std::vector<TensorToStore> stored;
  for (const StateTensor& tensor : tensors) stored.push_back({tensor.name, tensor.shape, tensor.values});
  return stored;
}

}  // namespace

StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(CheckpointAuthor author,
                                                                     TrainingState state) {
  size_t bytes = 0;
  for (const auto* tensors : {&state.weights, &state.moments}) {
    for (const StateTensor& tensor : *tensors) bytes += padded_bytes(tensor);
  }
  PENSTOCK_ASSIGN_OR_RETURN(kernels::Slab snapshot,
                            kernels::Slab::allocate(static_cast<int64_t>(bytes), "snapshot for checkpoints"));
  return std::unique_ptr<CheckpointWriter>(
      new CheckpointWriter(std::move(author), std::move(state), std::move(snapshot)));
}

CheckpointWriter::CheckpointWriter(CheckpointAuthor author, TrainingState state, kernels::Slab snapshot)
    : author_(std::move(author)), state_(std::move(state)), snapshot_(std::move(snapshot)) {
  auto* memory = static_cast<std::byte*>(snapshot_.view().data);
  copy_.weights = laid_out(state_.weights, memory);
  copy_.moments = laid_out(state_.moments, memory);
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::start(std::string fingerprint, Report report, const Clock& clock) {
  PENSTOCK_CHECK(!thread_.joinable(), "a checkpoint writer is started once");
  fingerprint_ = std::move(fingerprint);
  report_ = std::move(report);
  clock_ = &clock;
  thread_ = std::thread([this] { write_until_closed(); });
}

Status CheckpointWriter::take(int64_t step) {
  const TimePoint begin = clock_->now();
  PENSTOCK_RETURN_IF_ERROR(drain());
  if (const Duration waited = clock_->now() - begin; waited > kWaitWorthALine) {
    log::warning("checkpoint of step {} waited {:.2f} s until the one before it was written", step,
                 to_seconds(waited));
  }
  copy_values(state_.weights, copy_.weights);
  copy_values(state_.moments, copy_.moments);
  {
    const std::lock_guard lock(mutex_);
    step_ = step;
    busy_ = true;
  }
  changed_.notify_all();
  return ok_status();
}

Status CheckpointWriter::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  return reported_;
}

void CheckpointWriter::write_until_closed() {
  pthread_setname_np(pthread_self(), "checkpoint");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return busy_ || closing_; });
    if (closing_) return;
    const int64_t step = step_;
    lock.unlock();
    Status reported = report_(written(step));
    lock.lock();
    reported_ = std::move(reported);
    busy_ = false;
    changed_.notify_all();
  }
}

CheckpointWritten CheckpointWriter::written(int64_t step) const {
  const TimePoint begin = clock_->now();
  const Status status = write_part(step);
  CheckpointWritten report{author_.attempt, author_.rank, step, message(status)};
  if (status.ok()) {
    log::info("checkpoint of step {}: {} bytes written in {:.2f} s", step, snapshot_.bytes(),
              to_seconds(clock_->now() - begin));
  } else {
    log::error("checkpoint of step {} was not written: {}", step, report.problem);
  }
  return report;
}

std::string CheckpointWriter::folder_of(int64_t step) const {
  return author_.directory + "/" + draft_name(author_.attempt.job, author_.attempt.attempt, step);
}

// The part's own manifest comes last. What is left of a part that failed would only fill the disk.
Status CheckpointWriter::write_part(int64_t step) const {
  const std::string folder = folder_of(step);
  PENSTOCK_RETURN_IF_ERROR(make_folder(folder));
  CheckpointManifest part;
  part.job = author_.attempt.job;
  part.step = step;
  part.samples = step * author_.samples_per_step;
  part.spec_yaml = author_.spec_yaml;
  part.fingerprint = fingerprint_;
  const std::string weights = tensor_file_name("rank", author_.rank.value, author_.ranks);
  const std::string moments = tensor_file_name("moments", author_.rank.value, author_.ranks);
  const auto write = [&]() -> Status {
    PENSTOCK_ASSIGN_OR_RETURN(CheckpointShard shard, write_shard(folder, weights, to_store(copy_.weights)));
    part.shards.push_back(std::move(shard));
    PENSTOCK_ASSIGN_OR_RETURN(shard, write_shard(folder, moments, to_store(copy_.moments)));
    part.shards.push_back(std::move(shard));
    return write_atomically(folder + "/" + part_name(author_.rank.value, author_.ranks),
                            format_manifest(part));
  };
  const Status status = write();
  if (!status.ok()) {
    std::error_code ignored;
    for (const std::string& name : {weights, moments}) std::filesystem::remove(folder + "/" + name, ignored);
  }
  return status;
}

}  // namespace penstock::worker
