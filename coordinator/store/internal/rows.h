// The tables of the store, and the way of values into them and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/core/records.h"
#include "coordinator/store/internal/database.h"

namespace penstock::coordinator {

inline constexpr int64_t kApplicationId = 0x50'45'4e'53;  // "PENS", in the file's header
// 2: placements.placed_order; 3: validation; 4: traces; 5: checkpoints; 6: memory; 7: sums_since; 8: first_step; 9: measurements;
// 10: moves; 11: measured loads and memory, cordons; 12: submitted_yaml
inline constexpr int64_t kSchemaVersion = 13;

Status create_tables(Database& database);
// Inside a transaction. Writes that name an unknown job change nothing.
Status write_rows(Database& database, const Write& write);
// Of one job, by step. NotFound: no such job.
StatusOr<std::vector<double>> losses_of(Database& database, const std::string& job);
StatusOr<std::vector<StoredJob>> read_jobs(Database& database);
StatusOr<std::map<std::string, Cordon>> read_cordons(Database& database);

}  // namespace penstock::coordinator
