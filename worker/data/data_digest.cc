#include "worker/data/data_digest.h"

#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

namespace penstock::worker {
namespace {

uint64_t digest_of(const void* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}

std::string base_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// A peer's name, fit to be printed whatever its bytes are.
std::string printable(const std::array<char, 48>& name) {
  std::string text(name.data(), strnlen(name.data(), name.size()));
  for (char& c : text) c = std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  return text;
}

}  // namespace

StatusOr<DataFingerprint> DataFingerprint::take(const plan::JobSpec& job) {
  DataFingerprint fingerprint;
  PENSTOCK_ASSIGN_OR_RETURN(const TokenSource training, TokenSource::open(job));
  fingerprint.add_files(training.samples());
  PENSTOCK_RETURN_IF_ERROR(fingerprint.take_samples(training.samples(), job.data.sequence_length,
                                                    job.train.steps * job.train.global_batch_size, 0,
                                                    DataDigest::kTrainingSamples));
  if (job.validation.every > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(const TokenSource held_out, TokenSource::open_validation(job));
    fingerprint.add_files(held_out.samples());
    PENSTOCK_RETURN_IF_ERROR(fingerprint.take_samples(held_out.samples(), job.validation.data.sequence_length,
                                                      job.validation.microbatches * job.train.microbatch_size,
                                                      DataDigest::kTrainingSamples,
                                                      DataDigest::kValidationSamples));
  }
  fingerprint.take_listing();
  return fingerprint;
}

void DataFingerprint::add_files(const SampleSet& set) {
  for (const TokenStream& source : set.sources()) {
    for (const TokenFile& file : source.files()) files_.push_back({base_name(file.path()), file.bytes()});
  }
}

void DataFingerprint::take_listing() {
  std::string listing;
  for (size_t i = 0; i < files_.size(); ++i) {
    const File& mine = files_[i];
    digest_.bytes += mine.bytes;
    listing += fmt::format("{}/{}\n", mine.bytes, mine.name);  // no name holds a '/'
    if (i >= digest_.first_files.size()) continue;
    DataDigest::File& file = digest_.first_files[i];
    file.name_digest = digest_of(mine.name.data(), mine.name.size());
    file.bytes = mine.bytes;
    std::copy_n(mine.name.begin(), std::min(mine.name.size(), file.name.size()), file.name.begin());
  }
  digest_.files = static_cast<int64_t>(files_.size());
  digest_.listing = digest_of(listing.data(), listing.size());
}

Status DataFingerprint::take_samples(const SampleSet& set, int64_t sequence_length, int64_t used, int begin,
                                     int count) {
  const int64_t last = std::clamp(used, int64_t{1}, set.order().samples()) - 1;
  std::vector<int32_t> sample(static_cast<size_t>(sequence_length + 1));
  for (int64_t i = 0; i < count; ++i) {
    // Split so that nothing overflows, however long the run is.
    const int64_t parts = count - 1;
    const int64_t index = last / parts * i + last % parts * i / parts;
    PENSTOCK_RETURN_IF_ERROR(set.read(index, sample));
    digest_.samples[begin + i] = digest_of(sample.data(), sample.size() * sizeof(int32_t));
    const SampleSet::Start start = set.start(index);
    const TokenStream::Place place = start.source->place(start.token);
    places_.push_back(fmt::format("{} tokens of {} from place {} on", sample.size(),
                                  base_name(place.file->path()), place.token));
  }
  return ok_status();
}

Status DataFingerprint::compare(const DataDigest& theirs, const std::string& me,
                                const std::string& other) const {
  const std::string both = fmt::format("data: {} and {} read different data", me, other);
  const int64_t common = std::min({digest_.files, theirs.files, int64_t{DataDigest::kFiles}});
  for (int64_t i = 0; i < common; ++i) {
    const DataDigest::File& mine = digest_.first_files[i];
    const DataDigest::File& their = theirs.first_files[i];
    if (mine.name_digest == their.name_digest && mine.bytes == their.bytes) continue;
    return failed_precondition("{}: file {} is {} of {} bytes on {} and {} of {} bytes on {}", both, i + 1,
                               files_[i].name, mine.bytes, me, printable(their.name), their.bytes, other);
  }
  if (digest_.listing != theirs.listing || digest_.files != theirs.files || digest_.bytes != theirs.bytes) {
    return failed_precondition(
        "{}: {} files of {} bytes on {}, {} of {} on {}; their names and sizes differ after the first {}",
        both, digest_.files, digest_.bytes, me, theirs.files, theirs.bytes, other, common);
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    if (digest_.samples[i] == theirs.samples[i]) continue;
    return failed_precondition("{}: the {} differ; both have {} bytes in all", both, places_[i],
                               digest_.bytes);
  }
  return ok_status();
}

}  // namespace penstock::worker
