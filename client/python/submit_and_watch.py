"""Submits a job file and watches it to its end: all that a client in another language needs.

    submit_and_watch.py HOST:PORT JOB.yaml      (PYTHONPATH: what protoc makes of proto/, build/release/python)
"""
import sys
import uuid

import grpc
from penstock.v1 import common_pb2, jobs_pb2, jobs_pb2_grpc

address, path = sys.argv[1:]
jobs = jobs_pb2_grpc.JobsStub(grpc.insecure_channel(address))
caller = common_pb2.Caller(principal="python")
with open(path, encoding="utf-8") as file:
    submit = jobs_pb2.SubmitRequest(caller=caller, spec_yaml=file.read(), request_id=uuid.uuid4().hex)
name = jobs.Submit(submit, timeout=10).name
for job in jobs.Watch(jobs_pb2.WatchJobRequest(caller=caller, name=name), timeout=24 * 3600):
    loss = f"{job.loss:.4f}" if job.HasField("loss") else "-"
    print(jobs_pb2.JobState.Name(job.state), job.step, loss, flush=True)
sys.exit(job.exit_code)
