#include "coordinator/rpc/workers_service.h"

#include "coordinator/rpc/unary.h"
#include "coordinator/rpc/worker_session.h"

namespace penstock::coordinator {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* WorkersService::Session(
    grpc::CallbackServerContext* context) {
  const auto session = std::make_shared<WorkerSession>(house_, context, register_within_);
  session->start();
  return session.get();  // it holds itself until OnDone
}

grpc::ServerUnaryReactor* WorkersService::List(grpc::CallbackServerContext* context,
                                               const v1::ListWorkersRequest* request,
                                               v1::ListWorkersResponse* response) {
  Answer answer(context, house_.probe, "Workers.List");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.list_workers([answer, response](StatusOr<std::vector<WorkerView>> views) {
    if (views.ok()) {
      for (const WorkerView& view : *views) *response->add_workers() = to_proto(view);
    }
    answer.finish(views.status());
  });
  return answer.reactor();
}

namespace {

// Finishes the call with the worker's devices.
template <typename Response>
std::function<void(StatusOr<std::vector<WorkerView>>)> devices_into(Response* response,
                                                                    const Answer& answer) {
  return [answer, response](StatusOr<std::vector<WorkerView>> views) {
    if (views.ok()) {
      for (const WorkerView& view : *views) *response->add_devices() = to_proto(view);
    }
    answer.finish(views.status());
  };
}

}  // namespace

grpc::ServerUnaryReactor* WorkersService::Drain(grpc::CallbackServerContext* context,
                                                const v1::DrainWorkerRequest* request,
                                                v1::DrainWorkerResponse* response) {
  Answer answer(context, house_.probe, "Workers.Drain");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.drain_worker(request->name(), answer.principal(), devices_into(response, answer));
  return answer.reactor();
}

grpc::ServerUnaryReactor* WorkersService::Uncordon(grpc::CallbackServerContext* context,
                                                   const v1::UncordonWorkerRequest* request,
                                                   v1::UncordonWorkerResponse* response) {
  Answer answer(context, house_.probe, "Workers.Uncordon");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.uncordon_worker(request->name(), answer.principal(), devices_into(response, answer));
  return answer.reactor();
}

}  // namespace penstock::coordinator
