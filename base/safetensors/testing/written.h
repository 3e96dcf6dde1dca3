// Writes safetensors files as a test wants them, right and wrong. Tests only: errors stop the process.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/safetensors/writer.h"

namespace penstock::testing {

// A folder of its own that goes with its owner.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string path(const std::string& name = "") const {
    return (name.empty() ? path_ : path_ / name).string();
  }
  void write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

// The bytes of a file with this header and so many bytes of data (zeros).
inline std::string safetensors_bytes(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t count = header.size();
  std::memcpy(bytes.data(), &count, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

struct WrittenTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

inline void write_tensors(const std::string& path, const std::vector<WrittenTensor>& tensors,
                          const std::string& dtype = "F32") {
  std::vector<TensorEntry> entries;
  for (const WrittenTensor& tensor : tensors)
    entries.push_back(tensor_to_write(tensor.name, tensor.shape, dtype));
  auto writer = SafetensorsWriter::create(path, entries, {{"format", "pt"}});
  PENSTOCK_CHECK(writer.ok(), "{}", message(writer.status()));
  for (const WrittenTensor& tensor : tensors) {
    const Status written = writer->append(tensor.values);
    PENSTOCK_CHECK(written.ok(), "{}", message(written));
  }
  const Status committed = writer->commit();
  PENSTOCK_CHECK(committed.ok(), "{}", message(committed));
}

}  // namespace penstock::testing
