// `model: {from: DIR}` in the text of a job file.
//
// The text is the spec on the wire and its reader opens no file. So whoever submits reads DIR/config.json and puts
// what it says of the model beside the folder, in the same line:
//     from: ../tiny        becomes        from: {directory: "/models/tiny", vocab_size: 256, hidden_size: 64, ...}
// Keys of the model that the job file gives too must say the same; parse_job_spec tells which differ. A job file
// that gives every key of the model itself may keep a plain path.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The folder as it is written; "" where there is none to read: no such key, or its model stands there already.
// InvalidArgument when the text is no YAML that parse_job_spec reads.
StatusOr<std::string> model_source(const std::string& yaml);

// The text, line for line, with the folder and the model in place of the path. `directory` is absolute. InvalidArgument
// when the path does not stand on one line, or the text has none.
StatusOr<std::string> with_model_source(const std::string& yaml, const std::string& directory,
                                        const ModelSpec& model);

// "vocab_size: 256", ...: the keys of the model that config.json fixes, as a job file spells them.
std::vector<std::string> model_keys(const ModelSpec& model);

}  // namespace penstock::plan
