#include "client/main/help.h"

#include "base/text.h"
#include "client/commands/commands.h"

namespace penstock::client {

Help help_of_up() {
  return {"up", "Run a coordinator and workers on this machine, in the foreground",
          "Examples:\n"
          "  penstock up --workers 4                      serve until Ctrl-C; prints the address\n"
          "  penstock up --coordinator-port 7070          where the other commands look by default\n"
          "  penstock up --run job.yaml                   train one job, stop, exit with its result\n"
          "  penstock up --run job.yaml -o json           the same, ended by one line of JSON on stdout\n"
          "  penstock up --device emulated                one worker with 64 devices that compute nothing\n"};
}

Help help_of_submit() {
  return {"submit", "Hand a job to the service",
          "Examples:\n"
          "  penstock submit job.yaml                     queue it; relative data paths are the job file's "
          "neighbours\n"
          "  penstock submit job.yaml --follow            show progress; exits 0 succeeded, 1 failed, 2 "
          "refused,\n"
          "                                               3 cancelled, 4 no progress\n"
          "  penstock submit job.yaml --dry-run           check only\n"
          "  penstock submit job.yaml --profile quickstart    `auto` planned from what that job measured\n"};
}

Help help_of_get() {
  return {"get", "List jobs or workers",
          "Examples:\n"
          "  penstock get jobs                            one row a job\n"
          "  penstock get jobs -o wide -w                 with the reason of each state, and go on\n"
          "  penstock get job quickstart -o json          for programs\n"
          "  penstock get workers -o yaml\n"};
}

Help help_of_describe() {
  return {"describe", "Everything about one job or worker",
          "Examples:\n"
          "  penstock describe job quickstart             state and reason, stages, events\n"
          "  penstock describe worker worker-0\n"};
}

Help help_of_watch() {
  return {"watch", "Progress of a job: step, loss, tokens/s, ETA, and how busy each stage is",
          "Examples:\n"
          "  penstock watch quickstart                    until it has ended; exits with its result\n"
          "  penstock watch quickstart | tee progress.txt plain lines, off a terminal\n"};
}

Help help_of_logs() {
  return {"logs", "Log lines of a job's ranks",
          "Examples:\n"
          "  penstock logs quickstart                     what is kept, of all ranks\n"
          "  penstock logs quickstart --rank 3 -f         one rank, and go on\n"};
}

Help help_of_trace() {
  return {
      "trace", "A step as its ranks ran it, against the simulation of what it measured",
      "Examples:\n"
      "  penstock trace quickstart                    the newest step that is traced: where time went\n"
      "  penstock trace quickstart --step 2 -o step-2.json    both rows of every rank, for ui.perfetto.dev\n"
      "  penstock trace quickstart -o json            for programs\n"};
}

Help help_of_cancel() {
  return {"cancel", "Stop a job for good",
          "Examples:\n"
          "  penstock cancel quickstart\n"};
}

Help help_of_drain() {
  return {
      "drain", "Give a worker no new ranks; those that it runs go on to the end of their attempt",
      "Examples:\n"
      "  penstock drain worker-3            stays so when worker or coordinator restart; `penstock uncordon` ends it\n"
      "  penstock pause JOB; penstock resume JOB      moves a job away from it, over the job's next checkpoint\n"};
}

Help help_of_uncordon() {
  return {"uncordon", "Give a drained worker ranks again",
          "Examples:\n"
          "  penstock uncordon worker-3\n"};
}

Help help_of_pause() {
  return {"pause", "Drain a job to its next checkpoint and give its devices back",
          "Examples:\n"
          "  penstock pause quickstart\n"};
}

Help help_of_resume() {
  return {
      "resume", "Go on with a paused job, where its newest checkpoint ends",
      "Examples:\n"
      "  penstock resume quickstart\n"
      "  penstock resume quickstart --with fewer_ranks.yaml   another split, schedule or number of ranks\n"};
}

Help help_of_schedule() {
  return {
      "schedule", "Draw a pipeline schedule and its figures; needs no coordinator",
      "Examples:\n"
      "  penstock schedule 1f1b -p 4 -m 8\n"
      "  penstock schedule interleaved-1f1b -p 4 -m 8 -s 2 --timeline aligned -o json\n"
      "  penstock schedule 1f1b-v -p 4 -m 8 -o svg > schedule.svg           a picture\n"
      "  penstock schedule zb-h1 -p 4 -m 8 -o perfetto > trace.json         for ui.perfetto.dev\n"
      "  penstock schedule zb-v -p 4 -m 8 -o torch-csv > zbv.csv            for torch.distributed.pipelining\n"
      "  penstock schedule zb-auto -p 8 -m 32 --costs 18.5,18.1,9.3 --latency 0.6 --memory-limit 16\n"
      "  penstock schedule 1f1b-v -p 4 -m 8 --bytes-per-activation 10GB --static-bytes 12GB --memory-budget 80GB\n"
      "  penstock schedule gpipe -p 4 -m 8 --bandwidth 50MB --message-bytes 8MB --contention 4/132\n"
      "  penstock schedule 1f1b -p 4 -m 8 --stage-costs measured.json\n"
      "  penstock schedule file:mine.csv              a program of your own, JSON or CSV\n"
      "\n"
      "Figures that go by one name elsewhere:\n"
      "  makespan     from the first action to the last, over all ranks\n"
      "  span         of one rank, from its own first action to its own last: what zero-bubble papers shorten\n"
      "  idle/total   idle part of ranks x makespan: (P-1)/(m+P-1) for 1f1b\n"
      "  idle/useful  idle time by computing time: (P-1)/m for 1f1b\n"
      "  held to W    forwards whose B, or W where the backward is split, has not ended\n"
      "  held to I    the same when B or I releases them: zero-bubble papers lie between the two\n"
      "  forward      of one stage; with V stages on a rank, papers that count whole ranks divide by V\n"};
}

Help help_of_verify() {
  return {"verify", "Prove that a program may run; exits 0 valid, 1 invalid with the reason",
          "Examples:\n"
          "  penstock schedule 1f1b -p 4 -m 8 -o json > mine.json\n"
          "  penstock verify mine.json\n"
          "  penstock verify zbv.csv                      PyTorch's compute_only or compute_comms\n"
          "  penstock verify mine.json -o json\n"};
}

Help help_of_partition() {
  return {
      "partition", "Cut layers into the stages of a pipeline, exactly; needs no coordinator",
      "COSTS.json: {\"layers\": [{\"name\": \"block.0\", \"time_ms\": 8.2, \"activation_bytes\": 1e8, \"static_bytes\": 2e9,\n"
      "  \"recompute\": {\"time_ms\": 11, \"activation_bytes\": 1e7}}, ...], \"worker_speed\": [1, 0.8, ...]}\n"
      "time_ms is forward and backward of a microbatch; recompute and worker_speed may be missing.\n"
      "Examples:\n"
      "  penstock partition costs.json -p 8\n"
      "  penstock partition costs.json -p 8 --memory-budget 16GB       exits 1 with the smallest that works, if none "
      "fits\n"
      "  penstock partition costs.json -p 4 -s 2 --placement v -o json\n"
      "  penstock partition costs.json -p 4 -m 32 --schedule gpipe --memory-budget 40GB\n"
      "  penstock partition costs.json -p 4 --current 0,8,16,24,34     of equal splits, the one that moves least\n"};
}

Help help_of_plan() {
  return {
      "plan", "The best schedule, split, recomputation and size of microbatch for a job, by simulation",
      "PROFILE: a job of the service (NAME or job:NAME), whose measured runs tell what layers cost; or a file: layer costs\n"
      "as `penstock partition` reads, one for each item of the model (embedding, blocks, head), or what `penstock fit -o\n"
      "json` prints. Without one: the job's emulated costs, or rates of a device, which say how layers compare and not how\n"
      "long they take. Bytes that nobody says are predicted from the job. `microbatch_size: auto` is planned too.\n"
      "Examples:\n"
      "  penstock plan job.yaml --profile quickstart      the plans, best first, beside the usual rules of thumb\n"
      "  penstock plan job.yaml --profile fitted.json --memory-budget 40GB -o job   for the job file\n"
      "  penstock plan job.yaml --device-flops 312T --device-bandwidth 2T --search-seconds 4\n"
      "  penstock plan --from-config llama/config.json -p 8 --global-batch-size 64 --sequence-length 4096\n"
      "  penstock plan job.yaml --profile costs.json -o megatron-layout             or torchtitan\n"};
}

Help help_of_fit() {
  return {
      "fit", "Costs of layers by type, from what whole stages took; needs no coordinator",
      "MEASURED.json: {\"stages\": [{\"layers\": {\"embedding\": 1, \"block\": 4}, \"forward_ms\": 10.8, \"backward_ms\": "
      "22.0},\n"
      "  ...], \"predict\": [{\"layers\": {\"block\": 5}}, ...]}\n"
      "With \"tokens\" of two sizes of microbatch beside each stage: costs as a + b x tokens. With \"worker\": speeds.\n"
      "Examples:\n"
      "  penstock fit measured.json\n"
      "  penstock fit measured.json -o json\n"};
}

Help help_of_curves() {
  return {"curves", "What the stages of a job took and its ranks held, beside what was planned",
          "Examples:\n"
          "  penstock curves imbalanced                   bars: a stage that sticks out is seen at once\n"
          "  penstock curves imbalanced -o svg > curves.svg\n"
          "  penstock curves imbalanced -o json\n"};
}

Help help_of_rebalance() {
  return {
      "rebalance",
      "A better split for a job, from what its stages took: move or stay, why, and what it gains",
      "Nothing but the split changes, so that the losses keep every bit. A job whose file says `rebalance: apply` does\n"
      "this by itself; with `rebalance: propose` its events tell of it.\n"
      "--apply exits with 0 once the job goes on with another split, with 5 where its split stays or it has ended, with 1\n"
      "where a person has paused it: then `penstock resume JOB --with next.yaml` goes on with the split.\n"
      "Examples:\n"
      "  penstock rebalance imbalanced                the proposal\n"
      "  penstock rebalance imbalanced --apply        pause at the next checkpoint, go on with the new split\n"
      "  penstock rebalance imbalanced -o job > next.yaml     for another run\n"};
}

Help help_of_diagnose() {
  return {
      "diagnose",
      "Why a pipeline is slow: imbalance, a straggler, the data, memory or routing, with the numbers behind it",
      "Examples:\n"
      "  penstock diagnose quickstart                 a job of the service\n"
      "  penstock diagnose --trace trace.json         times by stage, replica and microbatch (raw_ms of "
      "dp0_stage0_F, ...)\n"
      "  penstock diagnose --trace trace.json -o json\n"};
}

Help help_of_layout() {
  return {"layout", "Megatron's layout strings and torchtitan's parts: read, check, write",
          "Examples:\n"
          "  penstock layout parse 'E|t*3|(t|)*5mL' -p 4\n"
          "  penstock layout format job.yaml -o torchtitan\n"};
}

Help help_of_layout_parse() {
  return {
      "parse", "Show a layout stage by stage, checked as Megatron checks it",
      "Examples:\n"
      "  penstock layout parse 'Et*3|(tt|)*29,m|L' -p 16 --num-layers 61 --mtp-num-layers 1\n"
      "  penstock layout parse '[[\"tok_embeddings\", \"layers.0\"], [\"norm\", \"lm_head\"]]' -o json\n"};
}

Help help_of_layout_format() {
  return {"format", "Write a layout as Megatron's string, torchtitan's parts or a job file's split",
          "Examples:\n"
          "  penstock layout format job.yaml              --pipeline-model-parallel-layout\n"
          "  penstock layout format 'Et|tt|tL' -o torchtitan  module_fqns_per_model_part\n"
          "  penstock layout format '[[\"embedding\", 0], [1, \"head\"]]' -o megatron\n"};
}

Help help_of_checkpoint() {
  return {"checkpoint", "Checkpoints and weights of jobs, and any Hugging Face folder",
          "Examples:\n"
          "  penstock checkpoint list                     of each job, and its final weights\n"
          "  penstock checkpoint export quickstart out    a folder that transformers loads\n"
          "  penstock checkpoint import some/llama        the job file's model section that starts from it\n"
          "  penstock checkpoint verify some/llama\n"};
}

Help help_of_checkpoint_verify() {
  return {
      "verify",
      "Prove that a folder holds the whole model, once, in finite numbers, and a checkpoint what was written",
      "Examples:\n"
      "  penstock checkpoint verify out               exits 0 valid, 1 invalid with file, tensor and offset\n"
      "  penstock checkpoint verify quickstart -o json\n"};
}

Help help_of_checkpoint_import() {
  return {
      "import",
      "Print the sections of a job that starts from a Hugging Face folder, or make a checkpoint of it",
      "Examples:\n"
      "  penstock checkpoint import some/llama        a model section: its weights, at step 0\n"
      "  penstock checkpoint import some/llama out    out becomes a checkpoint of step 0, for restart: {from: out}\n"
      "  penstock checkpoint import whole out         of an export with --optimizer: step and optimizer as they were\n"};
}

Help help_of_checkpoint_export() {
  return {
      "export", "Write weights as a Hugging Face folder",
      "Examples:\n"
      "  penstock checkpoint export quickstart out    its final weights, or its newest checkpoint\n"
      "  penstock checkpoint export out half --dtype bfloat16 --shard-bytes 1000000000\n"
      "  penstock checkpoint export DIR/step-000000050 whole --optimizer    a checkpoint, to go on with elsewhere\n"};
}

Help help_of_checkpoint_list() {
  return {"list", "Checkpoints and final weights of all jobs, and where they are",
          "Examples:\n"
          "  penstock checkpoint list -o json\n"};
}

Help help_of_data() {
  return {"data", "Tokenizers and files of tokens; needs no coordinator",
          "Examples:\n"
          "  penstock data prepare --train --vocab-size 8000 --model tokenizer.model books/*.txt\n"
          "  penstock data prepare --model tokenizer.model --to books.npy books/*.txt\n"
          "  penstock data inspect books.npy --vocab-size 8000\n"};
}

Help help_of_data_inspect() {
  return {
      "inspect", "What files of tokens hold, every token checked; exits 1 when one is damaged",
      "Formats: .npy (one row of uint16, uint32, int32 or int64), raw .bin (uint16, uint32), Megatron's .bin "
      "with an\n"
      ".idx beside it, and text (a byte is a token).\n"
      "Examples:\n"
      "  penstock data inspect books.npy --vocab-size 8000 --sequence-length 128\n"
      "  penstock data inspect shards/*.bin --token-type uint32 -o json\n"};
}

std::string overview_examples() {
  return "Examples:\n"
         "  penstock up --workers 4 --coordinator-port 7070\n"
         "  penstock submit job.yaml --follow\n"
         "  penstock schedule interleaved-1f1b -p 4 -m 8 -s 2\n"
         "\n"
         "penstock COMMAND --help shows the options of each.\n";
}

std::string schedule_names_text() {
  return join(known_schedules());
}

}  // namespace penstock::client
