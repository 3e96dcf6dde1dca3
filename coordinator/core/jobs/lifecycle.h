// The life of a job, as a table.
//
//     submit -> Queued -> Placing -> Preparing -> Running -> Succeeded
//                  ^ ^------'           |          |  \-> Draining -> Paused | Cancelled
//                  |                    v          v
//                  +--- Recovering <----+----------+            any live one -> Failed | Cancelled
//
// Placing falls back to Queued when an older job wants its devices. A job that waits, or recovers, is Paused at once; Paused
// goes back to Queued when it is resumed. An ended state is never left.
#pragma once

#include "coordinator/core/views.h"

namespace penstock::coordinator {

bool can_move(JobState source, JobState target);

}  // namespace penstock::coordinator
