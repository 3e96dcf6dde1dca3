// One seeded piece of damage to a checkpoint on disk, of a kind that disks, copies or people do. Tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checkpoint/manifest.h"
#include "base/safetensors/testing/written.h"

namespace penstock::testing {

class Damage {
 public:
  // `victim` and `other`: checkpoints of two steps in `folder`, of one layout.
  Damage(const TemporaryFolder& folder, std::string victim, std::string other, uint64_t seed)
      : folder_(folder), victim_(std::move(victim)), other_(std::move(other)), random_(seed) {
    const auto manifest = parse_manifest(bytes_of(kManifestFile));
    PENSTOCK_CHECK(manifest.ok(), "{}", message(manifest.status()));
    for (const CheckpointShard& shard : manifest->shards) shards_.push_back(shard.name);
    files_ = shards_;
    for (const CheckpointText& text : manifest->texts) files_.push_back(text.name);
    files_.push_back(kManifestFile);
  }

  // Does one thing to the checkpoint, and says what.
  std::string one() {
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        return flip();
      case 3:
        return cut();
      case 4:
        return zero();
      case 5:
        return swap_shards();
      case 6:
        return take_from_another_step();
      case 7:
        return grow();
      case 8:
        return lose();
      default:
        return reseal();
    }
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }
  const std::string& any_file() { return files_[below(files_.size())]; }
  const std::string& any_shard() { return shards_[below(shards_.size())]; }
  std::string in(const std::string& name) const { return victim_ + "/" + name; }
  std::string bytes_of(const std::string& name) const { return folder_.read(in(name)); }
  void put(const std::string& name, const std::string& bytes) const { folder_.write(in(name), bytes); }

  std::string flip() {
    const std::string name = any_file();
    std::string bytes = bytes_of(name);
    const size_t at = below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
    put(name, bytes);
    return fmt::format("a bit of {} flipped at {}", name, at);
  }
  std::string cut() {
    const std::string name = any_file();
    const std::string bytes = bytes_of(name);
    const size_t kept = below(bytes.size());
    put(name, bytes.substr(0, kept));
    return fmt::format("{} cut to {}", name, kept);
  }
  // As a disk that lost a block: of the length that it had.
  std::string zero() {
    const std::string name = any_file();
    std::string bytes = bytes_of(name);
    const size_t first = below(bytes.size() - 4);
    const size_t count = std::min<size_t>(4 + below(64), bytes.size() - first);
    std::string zeros(count, '\0');
    if (bytes.substr(first, count) == zeros) zeros[0] = 1;
    bytes.replace(first, count, zeros);
    put(name, bytes);
    return fmt::format("{} of {} zeroed from {}", count, name, first);
  }
  // Files of the same bytes, as those without a tensor, are no damage in each other's place.
  std::string swap_shards() {
    while (true) {
      const std::string a = any_shard(), b = any_shard();
      const std::string of_a = bytes_of(a), of_b = bytes_of(b);
      if (of_a == of_b) continue;
      put(a, of_b);
      put(b, of_a);
      return fmt::format("{} and {} swapped", a, b);
    }
  }
  std::string take_from_another_step() {
    while (true) {
      const std::string name = any_shard();
      const std::string bytes = folder_.read(other_ + "/" + name);
      if (bytes == bytes_of(name)) continue;
      put(name, bytes);
      return name + " of another step";
    }
  }
  std::string grow() {
    const std::string name = any_file();
    put(name, bytes_of(name) + std::string(1 + below(9), static_cast<char>(below(256))));
    return name + " grown";
  }
  std::string lose() {
    const std::string name = any_file();
    std::filesystem::remove(folder_.path(in(name)));
    return name + " lost";
  }
  // By somebody who knows the format.
  std::string reseal() {
    auto manifest = *parse_manifest(bytes_of(kManifestFile));
    const std::string what = edit(manifest);
    put(kManifestFile, format_manifest(manifest));
    return "manifest resealed: " + what;
  }
  CheckpointShard& shard_with_tensors(CheckpointManifest& manifest) {
    while (true) {
      CheckpointShard& shard = manifest.shards[below(manifest.shards.size())];
      if (!shard.tensors.empty()) return shard;
    }
  }
  std::string edit(CheckpointManifest& manifest) {
    CheckpointShard& shard = shard_with_tensors(manifest);
    CheckpointTensor& tensor = shard.tensors[below(shard.tensors.size())];
    switch (below(9)) {
      case 0:
        ++manifest.step;
        return "another step";
      case 1:
        tensor.digest[below(16)] ^= 1;
        return "another digest";
      case 2:
        tensor.name += "_";
        return "another name";
      case 3:
        shard.tensors.pop_back();
        return "a tensor forgotten";
      case 4:
        std::erase_if(manifest.shards, [&, name = shard.name](const auto& one) { return one.name == name; });
        return "a shard forgotten";
      case 5:
        tensor.shape = {tensor.elements(), 1, 1};
        return "another shape";
      case 6:
        shard.tensors.push_back(tensor);
        return "a tensor twice";
      case 7:
        shard_with_tensors(manifest).name = "../" + shard.name;
        return "a shard outside";
      default: {
        CheckpointTensor& other = shard_with_tensors(manifest).tensors.front();
        if (&other == &tensor) {
          manifest.shards.push_back(shard);
          return "a shard twice";
        }
        std::swap(tensor.name, other.name);
        return "two names exchanged";
      }
    }
  }

  const TemporaryFolder& folder_;
  const std::string victim_;
  const std::string other_;
  std::mt19937_64 random_;
  std::vector<std::string> shards_;
  std::vector<std::string> files_;  // those, texts and the manifest
};

}  // namespace penstock::testing
