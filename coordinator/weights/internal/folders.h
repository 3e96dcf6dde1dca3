// What the folders of weights and of checkpoints have in common.
#pragma once

#include <string>
#include <system_error>

#include "base/status.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

Status folder_failed(const std::string& path, const char* what, const std::error_code& failure);
Status remove_file(const std::string& path);

// To directory-1, or the next number that is free: what an earlier job left is never overwritten.
Status move_beside(const std::string& directory);

// Makes the folder, if need be, and in it the marker, the only one then.
Status make_marked_folder(const WeightsPlace& place);

}  // namespace penstock::coordinator
