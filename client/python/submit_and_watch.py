#!/usr/bin/env python3
"""Submits a job file and watches it: `submit_and_watch.py HOST:PORT JOB.yaml`. Data paths must be absolute.

Generate the modules first:
  protoc -I proto --python_out=OUT --grpc_out=OUT --plugin=protoc-gen-grpc=$(which grpc_python_plugin) \
      proto/penstock/v1/*.proto && export PYTHONPATH=OUT
"""
import sys
import grpc
from penstock.v1 import common_pb2, jobs_pb2, jobs_pb2_grpc

address, path = sys.argv[1:]
jobs = jobs_pb2_grpc.JobsStub(grpc.insecure_channel(address))
me = common_pb2.Caller(principal="python")
submitted = jobs.Submit(jobs_pb2.SubmitRequest(caller=me, spec_yaml=open(path).read()), timeout=10)
for job in jobs.Watch(jobs_pb2.WatchJobRequest(caller=me, name=submitted.name), timeout=24 * 3600):
    print(job.name, jobs_pb2.JobState.Name(job.state), job.step, job.loss, flush=True)
sys.exit(job.exit_code)
