#include "worker/data/data_digest.h"

#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <utility>

#include "worker/data/permutation.h"

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
  PENSTOCK_ASSIGN_OR_RETURN(TextFiles text, TextFiles::open(job.data.sources));
  if (text.bytes() <= job.data.sequence_length) {
    return out_of_range("data: {} bytes, one sample needs {}", text.bytes(), job.data.sequence_length + 1);
  }
  DataFingerprint fingerprint(std::move(text), job.data.sequence_length);
  fingerprint.take_listing();
  PENSTOCK_RETURN_IF_ERROR(fingerprint.take_samples(job));
  return fingerprint;
}

void DataFingerprint::take_listing() {
  const std::vector<std::string> paths = text_.paths();
  const std::vector<int64_t> sizes = text_.file_bytes();
  digest_.files = static_cast<int64_t>(paths.size());
  digest_.bytes = text_.bytes();
  std::string listing;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string name = base_name(paths[i]);
    listing += fmt::format("{}/{}\n", sizes[i], name);  // no name holds a '/'
    if (i >= digest_.first_files.size()) continue;
    DataDigest::File& file = digest_.first_files[i];
    file.name_digest = digest_of(name.data(), name.size());
    file.bytes = sizes[i];
    std::copy_n(name.begin(), std::min(name.size(), file.name.size()), file.name.begin());
  }
  digest_.listing = digest_of(listing.data(), listing.size());
}

Status DataFingerprint::take_samples(const plan::JobSpec& job) {
  const int64_t windows = (text_.bytes() - 1) / sequence_length_;
  const int64_t last = std::clamp(job.train.steps * job.train.global_batch_size, int64_t{1}, windows) - 1;
  const Permutation order(static_cast<uint64_t>(job.train.seed), windows);
  std::vector<uint8_t> sample(static_cast<size_t>(sequence_length_ + 1));
  for (int64_t i = 0; i < DataDigest::kSamples; ++i) {
    // Split so that nothing overflows, however long the run is.
    constexpr int64_t kParts = DataDigest::kSamples - 1;
    const int64_t position = last / kParts * i + last % kParts * i / kParts;
    offsets_[i] = order.at(position) * sequence_length_;
    PENSTOCK_RETURN_IF_ERROR(text_.read(offsets_[i], sample));
    digest_.samples[i] = digest_of(sample.data(), sample.size());
  }
  return ok_status();
}

Status DataFingerprint::compare(const DataDigest& theirs, const std::string& me,
                                const std::string& other) const {
  const std::string both = fmt::format("data: {} and {} read different text", me, other);
  const int64_t common = std::min({digest_.files, theirs.files, int64_t{DataDigest::kFiles}});
  for (int64_t i = 0; i < common; ++i) {
    const DataDigest::File& mine = digest_.first_files[i];
    const DataDigest::File& their = theirs.first_files[i];
    if (mine.name_digest == their.name_digest && mine.bytes == their.bytes) continue;
    return failed_precondition("{}: file {} is {} of {} bytes on {} and {} of {} bytes on {}", both, i + 1,
                               base_name(text_.paths()[i]), mine.bytes, me, printable(their.name),
                               their.bytes, other);
  }
  if (digest_.listing != theirs.listing || digest_.files != theirs.files || digest_.bytes != theirs.bytes) {
    return failed_precondition(
        "{}: {} files of {} bytes on {}, {} of {} on {}; their names and sizes differ after the first {}",
        both, digest_.files, digest_.bytes, me, theirs.files, theirs.bytes, other, common);
  }
  for (size_t i = 0; i < digest_.samples.size(); ++i) {
    if (digest_.samples[i] == theirs.samples[i]) continue;
    const TextFiles::Place place = text_.place(offsets_[i]);
    return failed_precondition("{}: the {} bytes of {} from offset {} on differ; both texts are of {} bytes",
                               both, sequence_length_ + 1, base_name(place.path), place.offset,
                               digest_.bytes);
  }
  return ok_status();
}

}  // namespace penstock::worker
