// How much memory this process may still take: of the host, and of the control group that it lives in.
//
// Slabs touch every page when they are made, so what is asked for and is not there would end in the kernel's
// out-of-memory killer, without a word. It is therefore asked for first. Thread: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"

namespace penstock::kernels {

// MemAvailable of the text of /proc/meminfo, in bytes; nothing where it has none.
std::optional<int64_t> available_of_host(const std::string& meminfo);

// What the control group `group` ("/user.slice/x", from /proc/self/cgroup) and those above it leave, the narrowest of
// them: limit - usage, where file pages that the kernel can take back do not count as used. `mount` is where the
// groups are mounted: /sys/fs/cgroup of version 2, /sys/fs/cgroup/memory of version 1. Nothing where there is no limit.
std::optional<int64_t> available_of_groups(const std::filesystem::path& mount, const std::string& group);

// The narrower of the two; the largest integer where neither is known.
int64_t available_memory_bytes();

// ResourceExhausted with what is asked for, what for, and what there is.
Status expect_memory(int64_t bytes, const std::string& purpose);

}  // namespace penstock::kernels
