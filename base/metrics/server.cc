#include "base/metrics/server.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/host_port.h"

namespace penstock {
namespace {

// A scrape takes milliseconds and few read at once; more wait in a queue of kQueuedConnections.
constexpr const char* kThreads = "4";
constexpr const char* kQueuedConnections = "16";
constexpr const char* kRequestTimeoutMs = "5000";  // a connection that says nothing gives its thread back

void answer(mg_connection* connection, const char* type, const std::string& body, bool with_body) {
  mg_printf(connection,
            "HTTP/1.0 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
            "Connection: close\r\n\r\n",
            type, body.size());
  if (with_body) mg_write(connection, body.data(), body.size());
}

// One path. What `make` throws becomes a 500: civetweb is C, and an exception must not cross its frames.
class Page final : public CivetHandler {
 public:
  Page(const char* type, std::function<std::string()> make) : type_(type), make_(std::move(make)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override { return serve(connection, true); }
  bool handleHead(CivetServer*, mg_connection* connection) override { return serve(connection, false); }
  bool handlePost(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handlePut(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handleDelete(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handleOptions(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handlePatch(CivetServer*, mg_connection* connection) override { return refuse(connection); }

 private:
  bool serve(mg_connection* connection, bool with_body) noexcept {
    try {
      answer(connection, type_, make_(), with_body);
    } catch (const std::exception& thrown) {
      mg_send_http_error(connection, 500, "%s", thrown.what());
    } catch (...) {
      mg_send_http_error(connection, 500, "the page could not be made");
    }
    return true;
  }
  static bool refuse(mg_connection* connection) noexcept {
    mg_send_http_error(connection, 405, "only GET and HEAD are served here");
    return true;
  }

  const char* type_;
  std::function<std::string()> make_;
};

// civetweb reads commas and letters after the port as further listeners and options: only "host:port" passes.
Status check_address(const std::string& address) {
  return with_context(parse_host_port(address).status(), "metrics address");
}

void knock(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  (void)!connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  close(fd);
}

class CivetMetricsServer final : public MetricsServer {
 public:
  CivetMetricsServer(const std::string& address, std::shared_ptr<prometheus::Registry> registry)
      : server_(std::vector<std::string>{"listening_ports", address, "num_threads", kThreads,
                                         "connection_queue", kQueuedConnections, "request_timeout_ms",
                                         kRequestTimeoutMs, "enable_directory_listing", "no"}) {
    add("/metrics", "text/plain; version=0.0.4; charset=utf-8", [registry = std::move(registry)] {
      return prometheus::TextSerializer().Serialize(registry->Collect());
    });
  }
  ~CivetMetricsServer() override {
    // civetweb's listener looks at its stop flag every two seconds; a connection wakes it at once.
    std::jthread waker([port = port()](const std::stop_token& closed) {
      while (!closed.stop_requested()) {
        knock(port);
        std::this_thread::sleep_for(10ms);
      }
    });
    server_.close();  // before the pages that its threads may be in
  }

  int port() const override { return ports_.empty() ? 0 : ports_.front(); }
  void learn_ports() { ports_ = server_.getListeningPorts(); }

  void add_page(const std::string& path, std::function<std::string()> make) override {
    add(path, "application/json", std::move(make));
  }

 private:
  void add(const std::string& path, const char* type, std::function<std::string()> make) {
    pages_.push_back(std::make_unique<Page>(type, std::move(make)));
    server_.addHandler(path + "$", *pages_.back());  // the exact path, not everything below it
  }

  std::vector<std::unique_ptr<Page>> pages_;  // outlives server_'s threads: they end in close()
  std::vector<int> ports_;
  CivetServer server_;
};

}  // namespace

StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::start(
    const std::string& address, std::shared_ptr<prometheus::Registry> registry) {
  PENSTOCK_RETURN_IF_ERROR(check_address(address));
  try {
    auto server = std::make_unique<CivetMetricsServer>(address, std::move(registry));
    server->learn_ports();
    return server;
  } catch (const std::exception& thrown) {
    return unavailable("metrics server cannot listen on {}: {}; is the port taken, or the host not ours?",
                       address, thrown.what());
  }
}

}  // namespace penstock
